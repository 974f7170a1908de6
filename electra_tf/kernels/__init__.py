"""What the towers compute with besides products: random bits, fused chains."""
