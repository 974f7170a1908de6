"""Test that servers can read the files that an export writes for them."""

import pytest
import yaml
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
)

from electra_tf.serving.export import write_server_files

TYPES = descriptor_pb2.FieldDescriptorProto


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("folders") / "My_model"
    path.mkdir()
    write_server_files(str(path))
    return path


def parse(text, *types):
    """Parse a text with the first of messages, given as (name, fields).

    A field is (name, number, type or name of a message). The package of TF Serving's
    messages lacks those of batching and monitoring.
    """
    file = descriptor_pb2.FileDescriptorProto(name="settings.proto", syntax="proto3")
    for message_name, fields in types:
        message = file.message_type.add(name=message_name)
        for name, number, kind in fields:
            entry = message.field.add(name=name, number=number)
            entry.label, entry.type = TYPES.LABEL_OPTIONAL, TYPES.TYPE_MESSAGE
            if isinstance(kind, str):
                entry.type_name = f".{kind}"
            else:
                entry.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName(types[0][0])
    return text_format.Parse(text, message_factory.GetMessageClass(descriptor)())


def test_tf_serving_reads_its_files(folder):
    config = pytest.importorskip("tensorflow_serving.config.model_server_config_pb2")
    text = (folder / "models.config").read_text()
    models = text_format.Parse(text, config.ModelServerConfig()).model_config_list
    (model,) = models.config
    assert (model.name, model.base_path) == ("My_model", "/models/My_model")
    fields = [("enable", 1, TYPES.TYPE_BOOL), ("path", 2, TYPES.TYPE_STRING)]
    parsed = parse(
        (folder / "monitoring.config").read_text(),
        ("MonitoringConfig", [("prometheus_config", 1, "PrometheusConfig")]),
        ("PrometheusConfig", fields),
    ).prometheus_config
    assert (parsed.enable, parsed.path) == (True, "/monitoring/prometheus/metrics")


def test_batching_does_not_pad_ids(folder):
    # TF Serving pads each input with its first value: padding_mask with 1.
    names = "max_batch_size", "batch_timeout_micros", "max_enqueued_batches"
    fields = [(name, n, "Value") for n, name in enumerate(names, 1)]
    fields += [("num_batch_threads", 4, "Value")]
    fields += [("pad_variable_length_inputs", 7, TYPES.TYPE_BOOL)]
    value = "Value", [("value", 1, TYPES.TYPE_INT64)]
    text = (folder / "batching.txt").read_text()
    parsed = parse(text, ("BatchingParameters", fields), value)
    assert parsed.max_batch_size.value > 1
    assert not parsed.pad_variable_length_inputs


def test_kserve_has_a_valid_name_and_a_limit_of_memory(folder):
    service = yaml.safe_load((folder / "kserve.yaml").read_text())
    assert service["metadata"]["name"] == "my-model"
    assert service["spec"]["predictor"]["model"]["resources"]["limits"]["memory"]


def test_changed_files_are_kept(folder):
    (folder / "batching.txt").write_text("max_batch_size { value: 3 }\n")
    write_server_files(str(folder))
    assert (folder / "batching.txt").read_text() == "max_batch_size { value: 3 }\n"
