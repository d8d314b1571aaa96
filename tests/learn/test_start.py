from __future__ import annotations

from redline.learn.network.layers import Network
from redline.learn.network.start import first_weights


def test_a_network_without_outputs_that_see_has_weights_to_begin_with():
    network = Network(num_inputs=3, num_outputs=2, hidden=(4,), num_free=2)
    assert first_weights(network, seed=0).shape == (network.num_weights,)
