"""accelerate: which programs get whose top-k."""

import pickle
import re
import threading

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_rtopk import accelerate, plan_buckets

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.not_emulated]


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def calls(function, *operands):
    """The custom calls of the package, in the program of a jitted function."""
    return re.findall(r"custom_call @jax_rtopk_(\w+)", function.lower(*operands).as_text())


@pytest.fixture
def top_k():
    return jax.jit(lambda x: lax.top_k(x, 5))


def test_inside_and_outside(backend, top_k):
    x = normal(4, 100)
    outside = top_k(x)
    assert calls(top_k, x) == []
    with accelerate():
        inside = top_k(x)
        assert calls(top_k, x) == ["topk"] * backend.native
        eager = lax.top_k(x, 5)
    assert calls(top_k, x) == []
    assert jax.tree.structure(outside) == jax.tree.structure(inside) == jax.tree.structure(eager)
    for got in (outside, inside, eager):
        for leaf, want in zip(got, oracle.topk(x, 5), strict=True):
            oracle.assert_same(leaf, want)


def test_functions_that_were_traced_inside_are_traced_anew_outside(backend):
    traced = []

    @jax.jit
    def function(x):
        traced.append(1)
        return lax.top_k(x, 2)

    x = normal(3, 50)
    with accelerate():
        function(x)
        function(x)
    function(x)
    with accelerate():
        function(x)
    assert len(traced) == 2


def test_nesting_and_errors(backend, top_k):
    x = normal(4, 100)
    ours = ["topk"] * backend.native
    with accelerate():
        with accelerate():
            assert calls(top_k, x) == ours
        with pytest.raises(ZeroDivisionError), accelerate():
            raise ZeroDivisionError
        assert calls(jax.jit(lambda x: lax.top_k(x, 5)), x) == ours
    assert calls(top_k, x) == []


def test_jax_can_be_pickled_afterwards():
    with accelerate():
        pass
    for function in (lax.top_k, lax.approx_max_k, lax.approx_min_k):
        assert pickle.loads(pickle.dumps(function)) is function


def test_decorator(backend):
    @jax.jit
    @accelerate()
    def function(x):
        return lax.top_k(x, 3)[0].sum()

    assert calls(function, normal(2, 40)) == ["topk"] * backend.native
    assert calls(jax.jit(jax.grad(function)), normal(2, 40)) == ["topk"] * backend.native


def test_other_threads_are_left_alone(backend, top_k):
    x, found = normal(4, 100), []
    with accelerate():
        thread = threading.Thread(target=lambda: found.append(calls(top_k, x)))
        thread.start()
        thread.join()
        assert calls(top_k, x) == ["topk"] * backend.native
    assert found == [[]]


def test_transformations(backend):
    x = normal(6, 4, 50)

    def loss(x):
        values, indices = lax.top_k(x, 3)
        return (values**2 * (indices + 1)).sum()

    want = jax.vmap(jax.grad(loss))(x)
    with accelerate():
        oracle.assert_same(jax.jit(jax.vmap(jax.grad(loss)))(x), np.asarray(want))
        oracle.assert_same(jax.lax.map(jax.grad(loss), x), np.asarray(want))


def test_recall_is_kept(backend):
    x = normal(16, 65536)
    assert plan_buckets(65536, 256).num_buckets < 65536
    approximate = jax.jit(lambda x: lax.approx_max_k(x, 256, recall_target=0.95))
    with accelerate():
        values, indices = approximate(x)
        assert calls(approximate, x) == ["bucketed"] * backend.native
        assert calls(jax.jit(lambda x: lax.approx_max_k(x, 256, recall_target=1.0)), x) == ["topk"] * backend.native
        least, _ = lax.approx_min_k(x.T, 256, reduction_dimension=0)
    assert calls(approximate, x) == []
    true = oracle.topk(x, 256)[1]
    share = np.mean([np.isin(i, t).mean() for i, t in zip(np.asarray(indices), true, strict=True)])
    assert 0.93 < share < 0.999
    oracle.assert_same(values, np.take_along_axis(x, np.asarray(indices), -1))
    assert np.all(np.asarray(least)[0] == x.min(-1))


@pytest.mark.parametrize(
    ("name", "axis"),
    [("top_k", "axis"), ("approx_max_k", "reduction_dimension"), ("approx_min_k", "reduction_dimension")],
)
def test_other_axes(backend, name, axis):
    x = normal(50, 4)
    function = jax.jit(lambda x: getattr(lax, name)(x, 2, **{axis: 0}))
    with accelerate():
        assert calls(function, x) == ["topk"] * backend.native
        for got, want in zip(function(x), oracle.topk(x, 2, axis=0, largest=name != "approx_min_k"), strict=True):
            oracle.assert_same(got, want)


@pytest.mark.parametrize("name", ["approx_max_k", "approx_min_k"])
def test_tpus_have_their_own(monkeypatch, name):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    with accelerate():
        assert calls(jax.jit(lambda x: getattr(lax, name)(x, 4)), normal(2, 64)) == []


@pytest.mark.parametrize("arguments", [{"aggregate_to_topk": False}, {"reduction_input_size_override": 128}])
def test_what_is_left_to_jax(arguments):
    x = normal(2, 64)
    function = jax.jit(lambda x: lax.approx_max_k(x, 4, **arguments))
    want = function(x)
    with accelerate():
        assert calls(function, x) == []
        jax.tree.map(lambda got, w: oracle.assert_same(got, np.asarray(w)), function(x), want)


def test_dtypes_that_only_jax_has():
    x = jnp.arange(8).astype(jnp.float8_e4m3b11fnuz)
    want = lax.top_k(x, 3)
    with accelerate():
        got = lax.top_k(x, 3)
    assert [leaf.tolist() for leaf in got] == [leaf.tolist() for leaf in want]


@pytest.mark.parametrize("name", ["top_k", "approx_max_k", "approx_min_k"])
def test_weak_types(name):
    def weak(x):
        return [jax.typeof(leaf).weak_type for leaf in getattr(lax, name)(x, 2)]

    scalars = lax.broadcast(2.0, (5,))
    assert jax.typeof(scalars).weak_type
    want = weak(scalars)
    with accelerate():
        assert weak(scalars) == want


@pytest.mark.parametrize(("name", "operand", "k"), [("approx_max_k", np.arange(5), 2), ("approx_min_k", normal(5), 0)])
def test_what_jax_refuses_of_approximate_ones(name, operand, k):
    with accelerate(), pytest.raises(ValueError, match=r"floating|positive"):
        getattr(lax, name)(operand, k)


def test_names_that_are_others_for_a_while(backend, monkeypatch, top_k):
    with accelerate():
        installed = lax.top_k
    with monkeypatch.context() as patch:
        patch.setattr(lax, "top_k", lambda x, k: (x, k))
        with accelerate():
            assert calls(top_k, normal(4, 100)) == ["topk"] * backend.native
            assert lax.top_k(2, 3) == (2, 3)
    with accelerate():
        assert lax.top_k is installed


@pytest.mark.parametrize(("operand", "k"), [(np.zeros((2, 3), np.float32), 4), (np.zeros(3, np.complex64), 1)])
def test_errors_are_those_of_jax(operand, k):
    with pytest.raises(Exception) as outside:  # noqa: PT011
        lax.top_k(operand, k)
    with pytest.raises(type(outside.value)) as inside, accelerate():
        lax.top_k(operand, k)
    assert str(inside.value) == str(outside.value)
    assert "jax_rtopk" not in str(inside.value)


def test_a_sharded_batch_stays_where_it_is(backend, top_k):
    mesh = jax.sharding.Mesh(np.array(backend.devices[:2]), ("a",), axis_types=(AxisType.Auto,))
    x = jax.device_put(normal(4, 100), NamedSharding(mesh, P("a")))
    with accelerate():
        compiled = top_k.lower(x).compile()
    if backend.native:  # lax.top_k, on which pure JAX builds, gathers
        assert not re.findall(r"(all-gather|all-reduce|all-to-all|collective-\w+)(?:-start)?\(", compiled.as_text())
