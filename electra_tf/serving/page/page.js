// Sends the form to :predict and shows the outputs. Texts of requests, responses and
// labels are only ever set as text, so that markup in them has no effect.
"use strict";

const facts = JSON.parse(document.body.dataset.facts);
const model = `v1/models/${facts.name}`;
const TITLES = {
  text: "Text",
  text_b: "Second text",
  question: "Question",
  context: "Text with the answer",
};
let signatures = {};

const find = (id) => document.getElementById(id);

function element(tag, content = "", className = "") {
  const node = document.createElement(tag);
  node.append(...[content].flat());
  if (className) node.className = className;
  return node;
}

const percent = (number) => `${(100 * number).toFixed(1)}%`;

// ---- Views of the outputs of one text.

function showClasses({ probabilities, label, labels, choice }, { choices }) {
  const names = facts.labels ?? choices ?? [];
  const best = choice === undefined ? [label ?? labels].flat() : [names[choice]];
  const rows = probabilities
    .map((probability, index) => [probability, names[index] ?? `${index}`])
    .sort((a, b) => b[0] - a[0])
    .map(([probability, name]) => {
      const meter = element("meter");
      meter.value = probability;
      const cells = [name, meter, percent(probability)].map((c) => element("td", c));
      return element("tr", cells, best.includes(name) ? "best" : "");
    });
  return element("table", rows);
}

function showScore({ score }) {
  const range = facts.low === undefined ? "" : ` (${facts.low} to ${facts.high})`;
  return element("p", [element("strong", score.toFixed(3)), range]);
}

// Each type of entities has a hue, by its place among the labels: neighbours differ by
// the golden angle, so that many types stay distinct.
function typeMark(content, label, probability) {
  const typeOf = (tag) => tag.replace(/^[BIES]-/, "");
  const types = (facts.labels ?? []).filter((tag) => tag !== "O").map(typeOf);
  const distinct = [...new Set([...types, typeOf(label)])];
  const title = `${label} ${percent(probability)}`;
  const node = element("mark", [content, element("small", title)]);
  const hue = (215 + 137.5 * distinct.indexOf(typeOf(label))) % 360;
  node.style.setProperty("--hue", hue);
  return node;
}

// Offsets count code points, and strings of JavaScript 16-bit units.
function marked(text, spans) {
  const points = Array.from(text);
  const nodes = [];
  let end = 0;
  for (const span of spans.sort((a, b) => a.start - b.start)) {
    if (span.start < end) continue;
    nodes.push(points.slice(end, span.start).join(""));
    const content = points.slice(span.start, span.end).join("");
    nodes.push(span.mark(content));
    end = span.end;
  }
  nodes.push(points.slice(end).join(""));
  return element("p", nodes, "text");
}

function showAnswer({ answer, start, end, score, null_odds }, { context }) {
  const title = `score ${score.toFixed(2)}`;
  const mark = (text) => element("mark", [text, element("small", title)]);
  const spans = answer ? [{ start, end, mark }] : [];
  const line = answer || "No answer in the text";
  const odds = `null odds ${null_odds.toFixed(2)}`;
  return element("div", [
    element("p", [element("strong", line), ` (${title}, ${odds})`]),
    marked(context, spans),
  ]);
}

function showEntities({ types, starts, ends, scores }, { text }) {
  const spans = types.map((type, index) => ({
    start: starts[index],
    end: ends[index],
    mark: (content) => typeMark(content, type, scores[index]),
  }));
  return marked(text, spans.filter(({ start }) => start >= 0));
}

function showTags({ words, labels, probabilities }) {
  const nodes = words.flatMap((word, index) => {
    const label = labels[index];
    if (!word) return []; // beyond the words of this text
    if (label === "O") return [word, " "];
    return [typeMark(word, label, probabilities[index]), " "];
  });
  return element("p", nodes, "text");
}

function showReplaced({ tokens, replaced_probability }) {
  const nodes = tokens.map((token, index) => {
    const probability = replaced_probability[index];
    const node = element("span", token, "token");
    node.title = `replaced: ${percent(probability)}`;
    node.style.backgroundColor = `rgb(230 60 40 / ${0.75 * probability})`;
    return node;
  });
  const legend = "The redder, the more probably the token was replaced.";
  return element("div", [element("p", nodes, "text"), element("p", legend)]);
}

function showProposals({ proposals, probabilities }) {
  const rows = proposals.map((tokens, index) => {
    const cells = tokens.map((token, rank) =>
      element("td", `${token} ${percent(probabilities[index][rank])}`),
    );
    return element("tr", [element("th", `[MASK] ${index + 1}`), ...cells.slice(0, 5)]);
  });
  return element("table", rows);
}

function showVectors(outputs) {
  const items = Object.entries(outputs)
    .filter(([name]) => name.endsWith("_vector"))
    .map(([name, numbers]) => {
      const first = numbers.slice(0, 8).map((number) => number.toFixed(3));
      return element("li", `${name}: ${numbers.length} numbers, ${first.join(", ")} ...`);
    });
  return element("ul", items);
}

// The first view whose outputs the response has.
const VIEWS = [
  [["answer", "start", "end"], showAnswer],
  [["types", "starts", "ends"], showEntities],
  [["words", "labels"], showTags],
  [["tokens", "replaced_probability"], showReplaced],
  [["proposals"], showProposals],
  [["probabilities"], showClasses],
  [["score"], showScore],
  [["sentence_vector"], showVectors],
];

function show(outputs, inputs) {
  const view = VIEWS.find(([names]) => names.every((name) => name in outputs));
  const nodes = view ? [view[1](outputs, inputs)] : [];
  const cut = [outputs.pieces_cut ?? 0].flat().reduce((sum, count) => sum + count);
  if (cut) nodes.push(element("p", `Too long: ${cut} wordpieces were cut.`));
  find("result").replaceChildren(...nodes);
}

// ---- The form.

function isList({ tensor_shape: shape }) {
  return shape.dim.length === 2;
}

function choose() {
  const { inputs } = signatures[find("signature").value];
  const fields = Object.keys(inputs).map((name) => {
    const area = element("textarea");
    area.name = name;
    area.rows = name === "question" ? 1 : 4;
    area.required = name !== "text_b";
    const title = TITLES[name] ?? name;
    return element("label", [isList(inputs[name]) ? `${title}, one on each line` : title, area]);
  });
  find("inputs").replaceChildren(...fields);
  find("result").replaceChildren();
  document.querySelector("details").hidden = true;
}

async function call(path, options) {
  const response = await fetch(path, options);
  const text = await response.text();
  const value = JSON.parse(text);
  if (!response.ok) throw new Error(value.error);
  return value;
}

async function predict(event) {
  event.preventDefault();
  const specs = signatures[find("signature").value].inputs;
  const inputs = Object.fromEntries(
    [...new FormData(event.target)].map(([name, text]) => [
      name,
      isList(specs[name]) ? text.split("\n").filter((line) => line.trim()) : text,
    ]),
  );
  const request = { signature_name: find("signature").value, instances: [inputs] };
  find("state").textContent = "...";
  find("state").className = "";
  try {
    const body = JSON.stringify(request);
    const response = await call(`${model}:predict`, { method: "POST", body });
    const [row] = response.predictions;
    const names = Object.keys(signatures[request.signature_name].outputs);
    show(names.length > 1 ? row : { [names[0]]: row }, inputs);
    find("request").textContent = JSON.stringify(request, null, 1);
    find("response").textContent = JSON.stringify(response, null, 1);
    document.querySelector("details").hidden = false;
    find("state").textContent = "";
  } catch (error) {
    find("result").replaceChildren();
    fail(error);
  }
}

function fail(error) {
  find("state").textContent = error.message;
  find("state").className = "error";
}

async function start() {
  document.querySelector("h1").textContent = facts.name;
  document.title = facts.name;
  document.querySelector("form").addEventListener("submit", predict);
  find("signature").addEventListener("change", choose);
  const { metadata } = await call(`${model}/metadata`);
  signatures = metadata.signature_def.signature_def;
  const takesText = ({ inputs }) => {
    const specs = Object.values(inputs);
    return specs.length && specs.every(({ dtype }) => dtype === "DT_STRING");
  };
  const names = Object.keys(signatures).filter((name) => takesText(signatures[name]));
  if (!names.length) throw new Error("The model has no signature that takes texts.");
  const first = facts.labels?.includes("O") ? "entities" : "serving_default";
  names.sort((a, b) => (b === first) - (a === first));
  find("signature").append(...names.map((name) => element("option", name)));
  find("choice").hidden = names.length < 2;
  choose();
}

start().catch(fail);
