#pragma once

#include <Python.h>

namespace jax_rtopk {

// A new Python type `Pair`, the base class of jax_rtopk.TopK: a tuple of exactly two, made without running any Python.
// Null, with an exception set, where Python refuses.
PyObject* make_pair_type();

}  // namespace jax_rtopk
