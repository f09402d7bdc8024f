"""Apps and goldens are read with care: what is wrong is refused in one line."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.verify import apps
from migrator.verify.apps import (
    app_names,
    find_app,
    framework_of,
    load_golden,
    recorded,
    source_digest,
)
from migrator.verify.command import verify_command
from migrator.verify.verify_arguments import VerifyArguments
from migrator.verify.verify_errors import VerifyError
from migrator.verify.verify_result import Tolerance

from .support import APP_TOML, Checkout


def refusal(name: str = "tiny") -> str:
    with pytest.raises(VerifyError) as caught:
        load_golden(find_app(name, "torchax"))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_an_app_is_found_from_inside_the_checkout(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout.app)
    app = find_app("tiny", "torchax")
    assert app_names() == ["tiny"]
    assert (app.entry, app.args) == ("main.py", ["--output", "out"])
    assert app.tolerances == {"y": Tolerance(atol=1e-6, reason="one rounding of float32")}
    assert app.precision == "highest"
    golden = load_golden(app)
    assert golden.device == "NVIDIA H200"
    assert golden.steps == {"work": (0.5, 0.01)}


def test_an_app_may_have_been_recorded_as_a_script_is() -> None:
    app = find_app("fashion_mnist", "keras_jax")
    assert (app.outputs, app.framework, app.tolerances) == (None, "tensorflow", {})
    assert recorded("fashion_mnist") == apps.checkout() / "golden/fashion_mnist"
    assert recorded("image_ops") is None
    assert (framework_of("fashion_mnist"), framework_of("image_ops")) == ("tensorflow", "torch")


@pytest.mark.parametrize(
    ("given", "name", "wanted"),
    [
        (["fashion_mnist"], "", ("keras_jax",)),
        (["fashion_mnist", "--target", "all"], "", ("keras_jax", "tf_tpu")),
        (["image_ops", "--target", "all"], "", ("torch_tpu", "torch_xla", "torchax")),
        (["--all", "--target", "all"], "fashion_mnist", ("keras_jax", "tf_tpu")),
        (["--all", "--target", "torchax"], "fashion_mnist", ()),
        (["--all", "--target", "torchax"], "image_ops", ("torchax",)),
    ],
)
def test_an_app_runs_on_the_targets_of_its_framework(
    given: list[str], name: str, wanted: tuple[str, ...]
) -> None:
    with verify_command.make_context("verify", given) as context:
        assert VerifyArguments(**context.params).targets(name) == wanted


def test_a_stand_in_is_not_called_a_gpu(checkout: Checkout) -> None:
    checkout.provenance(device={"kind": "CPU stand-in for CUDA", "name": "CPU (x86_64)"})
    golden = load_golden(find_app("tiny", "torchax"))
    assert golden.device == "CPU stand-in for CUDA, CPU (x86_64)"


def test_a_target_can_have_its_own_tolerance(checkout: Checkout) -> None:
    checkout.toml(APP_TOML + '[tolerances.torch_xla.y]\nrtol = 1e-5\nreason = "another order"\n')
    assert find_app("tiny", "torchax").tolerances["y"].rtol == 0
    assert find_app("tiny", "torch_xla").tolerances["y"] == Tolerance(
        rtol=1e-5, reason="another order"
    )


def test_without_a_checkout_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(apps, "__file__", str(tmp_path / "site" / "migrator" / "verify" / "x.py"))
    assert "verify needs a checkout of tpu-migrate" in refusal()
    for more in ([], ["--bisect"], ["--compile-for", "v6e-1"]):
        done = CliRunner().invoke(verify_command, ["train", *more])
        assert done.exit_code == 2
        (line,) = done.output.splitlines()
        assert line.startswith("train on torchax: no such file; and for an app, verify needs a")


@pytest.mark.parametrize("name", ["other", "../tiny", ""])
def test_an_unknown_app_is_answered_with_the_known_ones(checkout: Checkout, name: str) -> None:
    assert refusal(name) == f"no app {name!r}; there are: tiny"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('entry = "main.py"', "", "'entry' is missing"),
        ('entry = "main.py"', 'entry = "../main.py"', "must be a path inside"),
        ('"out/outputs.safetensors"', '"/tmp/outputs"', "must be a path inside"),
        ("atol = 1e-6", "atoll = 1e-6", "unknown key in tolerances: atoll"),
        ("atol = 1e-6", "atol = nan", "at least 0"),
        ("atol = 1e-6", "max_mismatch = 1", "max_mismatch is below 1"),
        ('reason = "one rounding of float32"', "", "needs a reason"),
        ("[tolerances", "[[tolerances", "app.toml"),
    ],
)
def test_a_wrong_app_toml_is_refused(
    checkout: Checkout, before: str, after: str, message: str
) -> None:
    checkout.toml(APP_TOML.replace(before, after))
    assert message in refusal()


def test_a_golden_of_another_file_is_refused(checkout: Checkout) -> None:
    path = checkout.golden / "outputs.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert "is not the file of its provenance" in refusal()


@pytest.mark.parametrize("size", [0, 5, 40, -1])
def test_a_golden_cut_short_is_refused(checkout: Checkout, size: int) -> None:
    path = checkout.golden / "outputs.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    assert refusal().startswith("golden refused: ")


def test_something_else_than_a_golden_is_refused(checkout: Checkout) -> None:
    (checkout.golden / "outputs.safetensors").write_bytes(b"PK\3\4" * 100)
    assert "not a safetensors file" in refusal()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"app": "other"}, "is of the app 'other'"),
        ({"schema": 2}, "has schema 2, not 1"),
        ({"device": "fast"}, "is missing or malformed"),
        ({"outputs_sha256": None}, "is not the file of its provenance"),
    ],
)
def test_a_foreign_golden_is_refused(
    checkout: Checkout, change: dict[str, object], message: str
) -> None:
    checkout.provenance(**change)
    assert message in refusal()


def test_a_missing_golden_is_refused(checkout: Checkout) -> None:
    (checkout.golden / "outputs.safetensors").unlink()
    assert "cannot be read: No such file" in refusal()
    (checkout.golden / "provenance.json").unlink()
    assert "provenance.json cannot be read (No such file" in refusal()


def test_the_digest_of_an_app_follows_its_source_and_data(checkout: Checkout) -> None:
    before = source_digest(checkout.app)
    (checkout.app / "README").write_text("no source")
    assert source_digest(checkout.app) == before
    (checkout.app / "data").mkdir()
    (checkout.app / "data" / "x").write_text("data")
    assert source_digest(checkout.app) != before
