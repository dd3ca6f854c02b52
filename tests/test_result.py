"""TopK: a named tuple to Python and to JAX, made by native code where there is some."""

import copy
import gc
import inspect
import pickle
import weakref

import jax
import pytest
from jax.tree_util import GetAttrKey

from jax_rtopk import TopK, _result


@pytest.fixture(params=["native", "without native code"])
def kind(request, monkeypatch):
    if request.param == "native":
        return TopK

    class Plain(_result._AnyTuple, _result._Fields):
        __slots__ = ()
        _make = classmethod(TopK._make.__func__)

    return Plain


def test_is_a_named_tuple(kind):
    pair = kind(1, indices=2)
    assert pair == (1, 2) == kind(values=1, indices=2) == kind._make(iter([1, 2]))
    assert hash(pair) == hash((1, 2))
    assert (pair.values, pair.indices) == (1, 2)
    assert pair._replace(values=3) == (3, 2)
    assert pair._asdict() == {"values": 1, "indices": 2}
    assert kind._fields == kind.__match_args__ == ("values", "indices")
    assert list(inspect.signature(kind).parameters) == ["values", "indices"]
    assert repr(pair) == f"{kind.__name__}(values=1, indices=2)"
    assert not hasattr(pair, "__dict__")


def test_copies_keep_the_type():
    pair = TopK([1], 2)
    for copied in (copy.copy(pair), copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        assert copied == pair
        assert type(copied) is TopK


@pytest.mark.parametrize(
    ("arguments", "keywords"), [((), {}), ((1,), {}), ((1, 2, 3), {}), ((1, 2), {"values": 3}), ((1,), {"index": 2})]
)
def test_takes_two(kind, arguments, keywords):
    with pytest.raises(TypeError, match=r"argument|values|indices"):
        kind(*arguments, **keywords)


def test_is_a_pytree_of_two_leaves():
    pair = TopK(1, 2)
    with_paths, structure = jax.tree_util.tree_flatten_with_path(pair)
    assert with_paths == [((GetAttrKey("values"),), 1), ((GetAttrKey("indices"),), 2)]
    rebuilt = jax.tree.unflatten(structure, [3, 4])
    assert rebuilt == TopK(3, 4)
    assert type(rebuilt) is TopK
    assert structure == jax.tree.structure(rebuilt) != jax.tree.structure((1, 2))


def test_garbage_is_found():
    class Node:
        pass

    node = Node()
    node.pair = TopK(node, None)  # a cycle
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is None
