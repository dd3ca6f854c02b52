"""The documents: their examples are run, and neither public names nor error messages are missing."""

import ast
import doctest
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import pytest

import jax_rtopk
import jax_rtopk.flax
import jax_rtopk.linen
from jax_rtopk import export_disabled_checks, topk, topk_mask

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MODULES = sorted((ROOT / "jax_rtopk").glob("*.py"))


def read(page):
    return (DOCS / f"{page}.md").read_text()


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def words(text):
    """Line breaks are up to who prints."""
    return " ".join(text.split())


def assert_quotes(message, source):
    """That it is in the source as it stands, but for what it leaves out as `...`."""
    for part in words(message).split("..."):
        assert part.strip() in source


PAGES = sorted(page.stem for page in DOCS.glob("*.md") if blocks(page.read_text(), "python"))


@pytest.fixture
def errors_as_raised():
    """Without what JAX adds of its tracebacks."""
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    yield
    jax.config.update("jax_traceback_filtering", before)


@pytest.mark.usefixtures("errors_as_raised")
@pytest.mark.parametrize("page", PAGES)
def test_examples(page):
    # All but the examples becomes blank, so that lines keep their numbers.
    lines, is_example = [], False
    for line in read(page).splitlines():
        is_fence = line.startswith("```")
        lines.append(line if is_example and not is_fence else "")
        is_example = line == "```python" if is_fence else is_example
    test = doctest.DocTestParser().get_doctest("\n".join(lines), {}, page, f"{page}.md", 0)
    report = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(test, out=report.append)
    assert test.examples
    assert not report, "".join(report)


def test_all_python_is_examples():
    assert [page for page in PAGES for code in blocks(read(page), "python") if not code.startswith(">>> ")] == []


def test_readme():
    """Its examples, given the arrays that they speak of."""
    arrays = {
        "encoded": jnp.ones((1000, 64)),
        "decoder": jnp.ones((64, 3)),
        "encoder": jnp.ones((64, 256)),
        "sources": jnp.arange(1, 5),
        "targets": jnp.arange(4),
        "num_nodes": 1000,
        "n": 64,
    }
    exec("".join(blocks((ROOT / "README.md").read_text(), "python")), arrays)
    assert arrays["aggregated"].shape == (1000, 64)


@pytest.mark.parametrize("module", [jax_rtopk, jax_rtopk.flax, jax_rtopk.linen], ids=lambda module: module.__name__)
def test_public_names(module):
    documented = re.findall(rf"^\.\. auto\w+:: {module.__name__}\.(\w+)$", read("api") + read("api_flax"), re.MULTILINE)
    assert sorted(documented) == sorted(module.__all__)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_every_error_message_is_explained(module):
    """By the longest piece of text in each, and in each `rule` that several begin with."""
    page = words(read("errors"))
    for node in ast.walk(ast.parse(module.read_text())):
        is_error = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error")
        if is_error or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "rule"):
            texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            assert words(max(filter(str.__instancecheck__, texts), key=len)) in page


def test_messages_of_the_build_and_of_the_import():
    files = [*(ROOT / "cmake").glob("*.cmake"), ROOT / "jax_rtopk" / "_native.py", ROOT / "cpu" / "kernels.cc"]
    texts = (re.sub(r'"\s*\n\s*f?"', "", file.read_text()) for file in files)  # strings in pieces made whole
    source = words("".join(texts).replace('\\"', '"'))
    messages = blocks(read("faq"), "text")
    assert messages
    for message in messages:
        assert_quotes(message, source)


def test_programs_where_the_package_is_not_imported(tmp_path):
    operand = jax.ShapeDtypeStruct((4, 16), jnp.float32)
    for function in (topk, topk_mask):
        program = jax.export.export(jax.jit(lambda x, f=function: f(x, 2)), disabled_checks=export_disabled_checks())
        (tmp_path / function.__name__).write_bytes(program(operand).serialize())
    code = """
import pathlib, sys, jax.export, jax.numpy as jnp
for name in ("topk", "topk_mask"):
    try:
        jax.export.deserialize(pathlib.Path(sys.argv[1], name).read_bytes()).call(jnp.ones((4, 16)))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    for message, line in zip(blocks(read("export"), "text"), done.stdout.splitlines(), strict=True):
        assert_quotes(message, line)
