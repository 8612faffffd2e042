"""``hushtable infer`` on the shares of two servers: plans, what a server says, queries."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..client import ClientOptions, connect
from ..client.options import Dealer
from ..infer import SharesInfo, SharesPlanInfo
from ._servers import Servers
from .infer_hybrid import one_of
from .infer_users import load_users, one_user, print_logits
from .output import print_facts, print_json

DEALERS: tuple[Dealer, ...] = ("client", "servers")


def print_shares_plan(plan: SharesPlanInfo, as_json: bool) -> None:
    """What one prediction takes."""
    if as_json:
        print_json(dataclasses.asdict(plan))
        return
    facts: dict[str, Any] = {"plan": plan.name, "hash": plan.plan} if plan.name else {}
    print_facts(
        facts
        | {
            "numbers": f"{plan.fraction_bits} bits after the point, rows of {plan.value_bits}",
            "client": f"{plan.up_bytes:,} B up beside lookup keys, {plan.down_bytes} B down, "
            f"{plan.deal_ms:.2f} ms",
            "servers": f"{plan.peer_bytes:,} B to each other, each way, in {plan.rounds} messages",
            "work": f"{plan.server_ms:.2f} ms each: {plan.activations:,} activations, "
            f"{plan.products:,} products",
        }
        | _precompute(plan)
        | ({} if plan.error is None else {"error": f"{plan.error:.1e} of a logit"})
    )


def _precompute(plan: SharesPlanInfo) -> dict[str, str]:
    """What is made beforehand where the servers deal."""
    if plan.precompute_bytes is None:
        return {"precompute": "none: activations are too wide for servers to deal for"}
    return {
        "precompute": f"where servers deal: {plan.precompute_bytes:,} B kept by each, "
        f"{plan.precompute_peer_bytes:,} B to each other, {plan.precompute_ms:.1f} ms each"
    }


def shared_by(info: SharesInfo) -> str:
    """What one prediction takes, in a line."""
    return (
        f"{info.up_bytes:,} B up beside lookup keys and {info.down_bytes} B down for a user, "
        f"{info.peer_bytes:,} B to the other server in {info.rounds} messages, dealt by the "
        f"{info.dealer}"
    )


def query_shares(
    servers: Servers,
    dealer: str | None,
    dense: str | None,
    sparse: str | None,
    input_: Path | None,
    as_json: bool,
) -> None:
    """Prints each user's logit and probability, and what they cost."""
    limits = {"timeout": 60.0} | {name: v for name, v in servers.limits.items() if v is not None}
    options = ClientOptions(
        **limits, dealer=None if dealer is None else one_of("--dealer", dealer, DEALERS)
    )
    with connect(**servers.where, scheme="shares", options=options) as client:
        info = client.info
        if input_ is None:
            numbers, rows = one_user(dense or "", sparse or "", info.dense, info.bags)
        else:
            numbers, rows = load_users(input_, info.dense, info.bags)
        found = client.predict(rows, numbers)
    stats = found.stats
    print_logits(
        found,
        f"{1e3 * stats.seconds:.1f} ms; {stats.key_bytes:,} B of lookup keys and "
        f"{stats.dealt_bytes:,} B dealt up, {stats.bytes_down:,} B down",
        as_json,
    )
