// The base class of `jax_rtopk.TopK`. JAX makes a TopK for each call of a jitted function that returns one; the
// constructor of a Python named tuple would take as long as the selection of a few short rows.
#include "cpu/pair.h"

namespace jax_rtopk {
namespace {

PyObject* new_pair(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  PyObject* values = nullptr;
  PyObject* indices = nullptr;
  if (keywords == nullptr && PyTuple_Size(args) == 2) {  // the case that must be fast
    values = PyTuple_GetItem(args, 0);
    indices = PyTuple_GetItem(args, 1);
  } else {
    static char values_name[] = "values";
    static char indices_name[] = "indices";
    static char* names[] = {values_name, indices_name, nullptr};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:TopK", names, &values, &indices)) return nullptr;
  }
  PyObject* pair = PyType_GenericAlloc(type, 2);
  if (pair == nullptr) return nullptr;
  PyTuple_SetItem(pair, 0, Py_NewRef(values));
  PyTuple_SetItem(pair, 1, Py_NewRef(indices));
  return pair;
}

}  // namespace

PyObject* make_pair_type() {
  static char documentation[] =
      "Pair(values, indices)\n--\n\nThe base class of jax_rtopk.TopK, for its fast constructor.";
  PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(&new_pair)},
      {Py_tp_doc, documentation},
      {0, nullptr},
  };
  PyType_Spec spec = {"jax_rtopk._cpu.Pair", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  return PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(&PyTuple_Type));
}

}  // namespace jax_rtopk
