"""What the towers compute with besides products: random bits, fused chains."""

from electra_tf import backend

backend.check()
