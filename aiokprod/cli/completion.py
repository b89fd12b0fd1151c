"""`aiokprod completion SHELL`: the script that makes a shell complete commands and options."""

from __future__ import annotations

from typing import Final

import click

VARIABLE: Final = "_AIOKPROD_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell's completion script.

    \b
    bash:  eval "$(aiokprod completion bash)"                     in ~/.bashrc
    zsh:   eval "$(aiokprod completion zsh)"                      in ~/.zshrc, after compinit
    fish:  aiokprod completion fish > ~/.config/fish/completions/aiokprod.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(context.find_root().command, {}, "aiokprod", VARIABLE)
    script = made.source_template % made.source_vars()
    # click's script for fish ends a description at its first comma.
    click.echo(script.replace('string split "," $completion', 'string split --max 1 "," $completion'))
