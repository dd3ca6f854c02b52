"""Every bad call raises in Python, at trace time, and says what to do instead."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from jax_rtopk import topk, topk_mask, topk_sparsify


class Convertible:
    def __jax_array__(self):
        return X


FUNCTIONS = [topk, topk_mask, topk_sparsify]
X = jnp.ones((3, 8))

IMPLEMENTATIONS = 'implementation must be None, "native" or "xla", got'

# operand, arguments -> error, what the message must give: the rule, what was got, the fix.
BAD_CALLS = {
    "complex": (X + 1j, {"k": 1}, ValueError, "must be real, got complex64", "operand.real"),
    "int that no dtype holds": (2**70, {"k": 1}, ValueError, "at least one axis, got a scalar", "Reshape"),
    "scalar": (1.0, {"k": 1}, ValueError, "at least one axis, got a scalar", "Reshape"),
    "list": ([1.0, 2.0], {"k": 1}, TypeError, "must be a JAX or numpy array, got list", "jax.numpy.asarray"),
    "none": (None, {"k": 1}, TypeError, "must be a JAX or numpy array, got NoneType", "jax.numpy.asarray"),
    "convertible": (Convertible(), {"k": 1}, TypeError, "must be a JAX or numpy array, got Conv", "jax.numpy.asarray"),
    "token": (jax.lax.create_token(), {"k": 1}, TypeError, "must be a JAX or numpy array, got Token", "Convert"),
    "shape": (jax.ShapeDtypeStruct((3, 8), "float32"), {"k": 1}, TypeError, "got ShapeDtypeStruct", "jax.eval_shape"),
    "masked": (np.ma.array(np.ones((3, 8))), {"k": 1}, TypeError, "JAX or numpy array, got MaskedArray", "filled"),
    "strings": (np.array(["a"]), {"k": 1}, TypeError, "float32, bfloat16, .* got <U1", "astype"),
    "other byte order": (np.ones(3, ">f4"), {"k": 1}, TypeError, "float32, bfloat16, .* got >f4", "astype"),
    "objects": (np.ones(3, object), {"k": 1}, TypeError, "float32, bfloat16, .* got object", "astype"),
    "dates": (np.ones(3, "M8[s]"), {"k": 1}, TypeError, r"float32, bfloat16, .* got datetime64\[s\]", "astype"),
    "records": (np.ones(3, [("a", "f4")]), {"k": 1}, TypeError, r"float32, bfloat16, .* got \[\('a'", "astype"),
    "keys": (jax.random.key(0)[None], {"k": 1}, TypeError, "got key<fry>", "Convert"),
    "int4": (jnp.ones(3, jnp.int4), {"k": 1}, TypeError, "float32, bfloat16, .* got int4", "Convert"),
    "negative k": (X, {"k": -1}, ValueError, "k must be at least 0", "got -1"),
    "large k": (X, {"k": 9}, ValueError, r"at most the size .* k=9 for axis 1 of shape \(3, 8\)", "min(k"),
    "large k on axis 0": (X, {"k": 4, "axis": 0}, ValueError, r"k=4 for axis 0 of shape \(3, 8\)", "min(k"),
    "float k": (X, {"k": 2.0}, TypeError, "k must be a static Python int, got 2.0 of type float", "int()"),
    "numpy float k": (X, {"k": np.float32(2)}, TypeError, "k must be a static Python int, got", "int()"),
    "bool k": (X, {"k": True}, TypeError, "k must be a static Python int, got the bool True", "int(True)"),
    "numpy bool k": (X, {"k": np.True_}, TypeError, "k must be a static Python int, got the bool True", "int(True)"),
    "string k": (X, {"k": "2"}, TypeError, "k must be a static Python int, got '2' of type str", "int()"),
    "no k": (X, {"k": None}, TypeError, "k must be a static Python int, got None", "one int"),
    "axis too large": (X, {"k": 1, "axis": 2}, ValueError, r"between -2 and 1 .* shape \(3, 8\), got 2", "axis"),
    "axis too small": (X, {"k": 1, "axis": -3}, ValueError, r"between -2 and 1 .* shape \(3, 8\), got -3", "axis"),
    "float axis": (X, {"k": 1, "axis": 1.0}, TypeError, "axis must be a static Python int, got 1.0", "int()"),
    "several axes": (X, {"k": 1, "axis": (0, 1)}, TypeError, "axis must be a static Python int, got", "one int"),
    "no axis": (X, {"k": 1, "axis": None}, TypeError, "axis must be a static Python int, got None", "one int"),
    "max_iter 0": (X, {"k": 1, "max_iter": 0}, ValueError, "max_iter must be at least 1, got 0", "None"),
    "max_iter -1": (X, {"k": 1, "max_iter": -1}, ValueError, "max_iter must be at least 1, got -1", "None"),
    "float max_iter": (X, {"k": 1, "max_iter": 2.5}, TypeError, "max_iter must be a static .*, got 2.5", "int()"),
    "bool max_iter": (X, {"k": 1, "max_iter": True}, TypeError, "max_iter must be .*, got the bool", "int(True)"),
    "array k": (X, {"k": jnp.array([2])}, TypeError, r"k must be a static Python int, got Array\(\[2\]", "int()"),
    "implementation": (X, {"k": 1, "implementation": "cuda"}, ValueError, IMPLEMENTATIONS, "got 'cuda'"),
    "no str": (X, {"k": 1, "implementation": ["xla"]}, TypeError, IMPLEMENTATIONS, "as a str"),
    "array of str": (X, {"k": 1, "implementation": np.array("native")}, TypeError, IMPLEMENTATIONS, "as a str"),
    "arrays of str": (X, {"k": 1, "implementation": np.array(["a", "b"])}, TypeError, IMPLEMENTATIONS, "as a str"),
}
if np.dtype(np.longdouble) != np.float64:
    BAD_CALLS["long double"] = (np.ones(3, np.longdouble), {"k": 1}, TypeError, "bfloat16, .* got float", "astype")
if hasattr(jax, "new_ref"):
    BAD_CALLS["reference"] = (jax.new_ref(X), {"k": 1}, TypeError, "numpy array, got Ref", "operand[...]")


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("operand", "arguments", "error", "rule", "fix"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_call(function, operand, arguments, error, rule, fix):
    with pytest.raises(error, match=rule) as caught:
        function(operand, **arguments)
    message = str(caught.value)
    assert message.startswith(f"{function.__name__}: ")
    assert fix in message


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bad_call_inside_jit(function):
    """At trace time, so with nothing compiled."""
    with pytest.raises(ValueError, match=f"{function.__name__}: k must be at most"):
        jax.eval_shape(lambda x: function(x, 9), X)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("argument", ["k", "axis", "max_iter"])
def test_traced_number(function, argument):
    arguments = {"k": 1, "axis": 1, "max_iter": 1}
    with pytest.raises(TypeError, match=rf"{argument} must be a static Python int, got a traced .* static_argnums"):
        jax.jit(lambda x, traced: function(x, **{**arguments, argument: traced}))(X, 1)
    with pytest.raises(TypeError, match=rf"{argument} must be a static Python int, got a traced .* static_argnums"):
        jax.grad(lambda traced: function(X, **{**arguments, argument: traced})[0].sum())(1.0)
    # As the message says:
    jax.jit(lambda x, traced: function(x, **{**arguments, argument: traced}), static_argnums=1)(X, 1)


@pytest.mark.parametrize(
    ("function", "flag"),
    [
        (topk, "largest"),
        (topk, "sorted"),
        (topk_mask, "largest"),
        (topk_sparsify, "by_magnitude"),
        (topk_sparsify, "straight_through"),
    ],
)
def test_flags_are_bools(function, flag):
    for bad in ("no", 1, None, jnp.array(True)):
        with pytest.raises(TypeError, match=f"{function.__name__}: {flag} must be a Python bool, got"):
            function(X, 1, **{flag: bad})
    with pytest.raises(TypeError, match=f"{flag} must be a Python bool, got .*static_argnames"):
        jax.jit(lambda x, traced: function(x, 1, **{flag: traced}))(X, True)
    function(X, 1, **{flag: np.False_})


def test_arguments_after_k_are_keywords():
    with pytest.raises(TypeError, match="positional argument"):
        topk(X, 1, 0)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_rows_longer_than_int32_indices(function):
    too_long = jax.ShapeDtypeStruct((1, 2**31), jnp.int8)
    with pytest.raises(ValueError, match=re.escape("at most 2**31 - 1 long, as indices are int32, got 2147483648")):
        jax.eval_shape(lambda x: function(x, 1), too_long)
    jax.eval_shape(lambda x: function(x, 1, axis=0), too_long)
    jax.eval_shape(lambda x: function(x, 1), jax.ShapeDtypeStruct((1, 2**31 - 1), jnp.int8))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_unreduced_operand(function):
    devices = np.array(jax.devices("cpu"))
    with jax.sharding.set_mesh(Mesh(devices, ("a",), axis_types=(AxisType.Explicit,))):
        x = jax.device_put(np.ones((4, 16), np.float32), P(None, "a"))
        y = jax.device_put(np.ones((16, 6), np.float32), P("a", None))

        @jax.jit
        def call(x, y):
            return function(jnp.einsum("ij,jk->ik", x, y, out_sharding=P(None, None, unreduced={"a"})), 2)

        with pytest.raises(ValueError, match=rf"{function.__name__}: .*pending sums .*\['a'\].*reshard"):
            call(x, y)
