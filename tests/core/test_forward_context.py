"""What a forward pass knows: keys, masks, sources, and interceptors of its calls."""

import jax
import jax.numpy as jnp
import numpy as np

from exburn import layers
from exburn.core import forward_context
from exburn.core.forward_context import Context, Interceptor, forward


def test_keys_are_a_function_of_the_pass_the_path_and_the_draw():
    def draws(seed):
        context = Context(key=jax.random.key(seed))
        paths = ["a", "a", "b"]
        return [jax.random.key_data(context.random_key(p)).tolist() for p in paths]

    one = draws(0)
    assert one == draws(0) != draws(1)
    assert len(set(map(tuple, one))) == 3
    part = Context(key=jax.random.key(0)).within()
    assert jax.random.key_data(part.random_key("a")).tolist() == one[0]
    assert part.drew and not Context().drew


def test_masks_are_of_the_array_itself_and_are_carried_to_the_next_pass():
    context, x, mask = Context(), jnp.ones(3), jnp.array([True, False, True])
    context.set_mask(x, mask)
    assert context.mask_of(x) is mask and context.mask_of(x + 0) is None
    context.carry({"out": x})
    assert Context().mask_of(x) is mask is forward_context.carried_mask(x)
    context.attach([x, jnp.zeros(1)], [None, mask])
    assert context.attachments([x])[1] == [mask]


def test_the_source_of_what_was_cast_twice_is_the_first():
    context, x = Context(), np.arange(3)
    half, double = x.astype("float16"), x.astype("float64")
    context.set_source(half, x)
    context.set_source(double, half)
    assert context.source_of(double) is x and context.source_of(x) is x


def test_a_pass_is_under_way_in_its_block():
    assert forward_context.current() is None
    with forward(Context(training=True)) as context:
        assert forward_context.current() is context and context.training
    assert forward_context.current() is None


class Note(Interceptor):
    def __init__(self, name, notes):
        self.name, self.notes = name, notes

    def __call__(self, layer, call, args, kwargs):
        self.notes.append(f"{self.name} {layer.name}")
        return call(*args, **kwargs) * 2


class Keep(Note):
    keeps_arrays = True


def test_interceptors_surround_the_calls_of_all_layers_of_a_pass():
    notes, layer = [], layers.Dense(1, kernel_initializer="ones", name="hidden")
    layer.build((None, 2))
    with forward(Context()) as context:
        context.interceptors = (Note("outer", notes), Keep("inner", notes))
        outputs = layer(jnp.ones((1, 2)))
    assert notes == ["outer hidden", "inner hidden"] and outputs.tolist() == [[8.0]]
    assert layer(jnp.ones((1, 2))).tolist() == [[2.0]]
    assert [type(one) for one in context.within().interceptors] == [Note]


def test_an_interceptor_may_give_the_layer_other_inputs():
    class Halve(Interceptor):
        def __call__(self, layer, call, args, kwargs):
            return call(*(value / 2 for value in args), **kwargs)

    with forward(Context()) as context:
        context.interceptors = (Halve(),)
        outputs = layers.Identity()(jnp.ones(2))
    assert outputs.tolist() == [0.5, 0.5]
