"""`nexus verifier`: starts a vLLM server that checks drafts."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cloud.verifier import serve as serving
from cloud.verifier import versions
from cloud.verifier.settings import PluginSettings, profile_file, rank_address
from shared import fingerprint
from shared.models.resolve import resolve
from shared.paths import default_draft_port

app = typer.Typer(
    name="verifier",
    help="The verifier: a stock vLLM server that checks drafts from outside.",
    no_args_is_help=True,
)


@app.callback()
def _verifier() -> None:
    """The verifier: a stock vLLM server that checks drafts from outside."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def serve(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="Catalogue name (`nexus models list`), model folder, or Hugging Face id.")
    ],
    draft_port: Annotated[
        str,
        typer.Option(
            help="Where gateways send drafts: ipc://PATH (a local socket) or tcp://HOST:PORT. "
            "Data-parallel rank r listens on PATH-r or PORT+r.",
            show_default="a socket of this user",
        ),
    ] = "",
    max_draft: Annotated[
        int, typer.Option(min=1, max=64, help="Most draft tokens that one step checks for one request.")
    ] = 8,
    wait_price: Annotated[
        float,
        typer.Option(
            min=0,
            help="How dear waiting for drafts is: at 1 a step waits only while that brings more tokens per second, "
            "below 1 also to save verifier time per token, at 0 for every draft that is expected.",
        ),
    ] = 0.5,
    least_gain: Annotated[
        float,
        typer.Option(
            min=1,
            help="A step drafts only if that promises so many times the tokens per second of a step without drafts: "
            "what promises less is within the error of the promise.",
        ),
    ] = 1.05,
    step_cost: Annotated[
        Path | None,
        typer.Option(
            help="JSON file of seconds by tokens per step. Read if it exists; else this machine is measured at "
            "start-up and the file written.",
            show_default="measured at each start",
        ),
    ] = None,
    draft_port_secret: Annotated[
        Path | None, typer.Option(help="File with the verifier's CURVE key pair; needed for tcp.")
    ] = None,
    draft_port_clients: Annotated[
        Path | None, typer.Option(help="Folder with the public keys of gateways; needed for tcp.")
    ] = None,
) -> None:
    """Serves MODEL, with every flag of `vllm serve` passed on.

    The answers are the model's own, with or without drafts: without any, this is plain vLLM.

    Examples:

      nexus verifier serve qwen2.5-coder-1.5b --port 8000

      nexus verifier serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 4 --max-draft 8
    """
    build, version = versions.check()
    on_gpu = build == "vllm"
    folder = resolve(model)
    port = draft_port or default_draft_port()
    settings = PluginSettings(
        draft_port=port,
        model=Path(model).name if Path(model).is_dir() else model,
        fingerprint=fingerprint.fingerprint(folder),
        vocabulary=fingerprint.vocabulary(folder),
        wait_price=wait_price,
        least_gain=least_gain,
        step_cost=str(step_cost.resolve() if step_cost else profile_file(port)),
        step_cost_given=step_cost is not None,
        sampler=f"vllm-{version}-{versions.SAMPLER}",
        curve_secret=str(draft_port_secret) if draft_port_secret else None,
        curve_clients=str(draft_port_clients) if draft_port_clients else None,
    )
    address = rank_address(settings.draft_port, 0)
    launch = serving.launch(
        folder=folder,
        settings=settings,
        max_draft=max_draft,
        on_gpu=on_gpu,
        extra=context.args,
        environ=os.environ,
    )
    print(
        f"Serving {settings.model} with vLLM {version} ({'GPU' if on_gpu else 'CPU'} build, first model runner), "
        f"drafts of up to {max_draft} tokens on {address}",
        file=sys.stderr,
    )
    serving.replace_process(launch)
