#!/usr/bin/env python3
"""Writes the named seeds of the targets that take steps: fuzz/seeds/TARGET/NAME.

A seed is told as steps, by the names that the target's source gives them; what is not said is zero. The bytes follow
from the source too (as the crate `arbitrary` reads them), so that a step that is added there changes no seed's story:
run this again. `cargo fuzz fmt TARGET seeds/TARGET/NAME` prints what a seed is.
"""

import pathlib
import re

HERE = pathlib.Path(__file__).parent


def split(text):
    """The parts of `text` between its outermost commas."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += char in "<([{"
        depth -= char in ">)]}"
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def fields(text):
    return [tuple(part.split(": ", 1)) for part in split(text)]


def definitions(target):
    """Each type of the target that is read from the fuzzer's bytes, by its name."""
    sources = [HERE / f"fuzz_targets/{target}.rs"]
    for module in re.findall(r"^mod (\w+);", sources[0].read_text(), re.M):
        sources += sorted((HERE / f"fuzz_targets/{module}").glob("*.rs"))
    types = {}
    for source in sources:
        text = re.sub(r"//.*", "", source.read_text()).replace("pub ", "")
        for kind, name, body in re.findall(r"derive\(Arbitrary.*?\n(struct|enum) (\w+) \{(.*?)\n\}", text, re.S):
            body = " ".join(body.split())
            types[name] = fields(body) if kind == "struct" else [re.match(r"(\w+)\s*(.*)", part).groups() for part in split(body)]
            types[name] = (kind, types[name])
    return types


def encode(types, kind, value):
    """The bytes from which `value` is read as one of `kind`."""
    if number := re.fullmatch(r"([ui])(8|16|32|64)", kind):
        return (value or 0).to_bytes(int(number[2]) // 8, "little", signed=number[1] == "i")
    if kind == "bool":
        return bytes([bool(value)])
    if option := re.fullmatch(r"Option<(.*)>", kind):
        return b"\0" if value is None else b"\1" + encode(types, option[1], value)
    if several := re.fullmatch(r"\[(.*); (\d+)\]", kind):
        values = list(value or [])
        values += [None] * (int(several[2]) - len(values))
        return b"".join(encode(types, several[1], each) for each in values)
    if many := re.fullmatch(r"Vec<(.*)>", kind):
        return b"".join(b"\1" + encode(types, many[1], each) for each in value or []) + b"\0"
    if kind.startswith("("):
        kinds = split(kind[1:-1])
        values = value or [None] * len(kinds)
        return b"".join(encode(types, each, value) for each, value in zip(kinds, values, strict=True))
    form, parts = types[kind]
    if form == "struct":
        return encode_fields(types, parts, value)
    name, inner = next(iter(value.items())) if isinstance(value, dict) else (value, None)
    names = [name for name, _ in parts]
    index = names.index(name or names[0])
    chosen = (-(-index * 2**32 // len(names))).to_bytes(4, "little")
    rest = parts[index][1]
    if rest.startswith("("):
        return chosen + encode(types, rest[1:-1], inner)
    return chosen + (encode_fields(types, fields(rest[1:-1].strip()), inner) if rest else b"")


def encode_fields(types, parts, value):
    unknown = set(value or {}) - {name for name, _ in parts}
    assert not unknown, f"there is no field {unknown}, only {parts}"
    return b"".join(encode(types, kind, (value or {}).get(name)) for name, kind in parts)


def bits(*flags):
    return sum({"local_write": 1, "write": 2, "read": 4, "atomic": 8, "bind": 16, "zero": 32}[flag] for flag in flags)


RC, RC_SHARED, UC, UC_SHARED, UD, UD_SHARED, INI, TGT = range(8)
PLAIN, EXTENDED, FOREIGN = range(8, 11)
WRONG_QKEY, WRONG_SOURCE = 1 << 4, 3 << 4
NOTHING = {"key": 255}


def receive(queue, area="Private"):
    return {"Receive": {"queue": queue, "elements": [{"area": area, "length": 1000}]}}


def message(pair, packets, lost=0, writes=False, **more):
    like = {"pair": pair, "area": "Open", "opcode": int(writes), "payload": 99, **more}
    return {"Message": {"packets": packets, "lost": lost, "like": like}}


def post(pair, operation, area="Open"):
    return {"Post": {"pair": pair, "operation": operation, "elements": [{"area": area, "length": 600}]}}


TRANSPORTS = {
    "uc_loses_the_middle_of_a_message": [receive(UC), message(UC, 2, lost=2), message(UC, 2)],
    "uc_write_beside_a_receive": [receive(UC), message(UC, 3, writes=True), message(UC, 0)],
    "ud_wrong_q_key_then_right": [receive(UD), message(UD, 0, strange=WRONG_QKEY), message(UD, 0)],
    "ud_from_a_stranger": [receive(UD_SHARED), receive(PLAIN), message(UD_SHARED, 0, strange=WRONG_SOURCE)],
    "ud_group_reaches_both": [receive(UD), receive(PLAIN), message(UD, 0, flags=1)],
    "xrc_names_a_queue_of_another_domain": [receive(FOREIGN, "PrivateExtended"), message(TGT, 1, srq=0xc2)],
    "xrc_send_and_write": [
        receive(EXTENDED, "PrivateExtended"),
        message(TGT, 1),
        message(TGT, 3, writes=True, area="OpenExtended"),
        {"Send": {"packets": 20}},
    ],
    "xrc_shared_queue_with_a_key_of_another_domain": [receive(EXTENDED, "Private"), message(TGT, 0)],
    "xrc_initiator_is_answered": [
        post(INI, 0),
        post(INI, 4, "Private"),
        {"Send": {"packets": 20}},
        {"Answer": {"count": 8, "like": {"pair": INI}}},
    ],
    "one_shared_queue_for_rc_and_ud": [receive(PLAIN), receive(PLAIN), message(RC_SHARED, 2), message(UD_SHARED, 0)],
    "a_region_goes_in_the_midst_of_a_write": [
        message(RC, 2, lost=4, writes=True),
        {"Deregister": "Open"},
        message(RC, 2, writes=True),
    ],
}


def create(qp_type, **more):
    return {"Create": {"qp_type": qp_type, "send": 16, "receive": 16, **more}}


def connected():
    """Two queue pairs on RC, the first of which has the second as its peer, and the other way round."""
    connect = [{"Connect": {"pair": pair, "peer": 1 - pair, "depth": 4, "retry": 0x6e}} for pair in (0, 1)]
    return [create(0), create(0), *connect]


def sent(operation, remote, *local, flags=2):
    local = [*local, NOTHING, NOTHING][:2]
    return {"Send": {"pair": 0, "operation": operation, "remote": remote, "local": local, "flags": flags}}


def lend(access, lent=0):
    return {"Lend": {"pair": 1, "lent": lent, "part": {"length": 4096}, "access": access, "flags": 2}}


WORK = {"Work": {"packets": 60}}
POLL = {"Poll": {"count": 60}}
PLACE = {"length": 64}
LENT = {"key": 1, "length": 64}
GRANT = bits("write", "read")
RECEIVE = {"Receive": {"pair": 1, "local": [PLACE, NOTHING]}}
VERBS = {
    "type_1_window_written_through_and_rebound": [
        *connected(), {"Allocate": {"lent": "WindowOne"}},
        lend(GRANT), sent(3, LENT, PLACE), WORK, lend(GRANT), sent(5, LENT, PLACE), WORK, POLL,
    ],
    "type_2_window_taken_back_by_send_with_invalidate": [
        *connected(), {"Allocate": {"lent": "WindowTwo"}},
        lend(GRANT), sent(3, LENT, PLACE), WORK, RECEIVE, sent(2, LENT), WORK, lend(GRANT), WORK, POLL,
    ],
    "fast_region_lent_invalidated_lent_again": [
        *connected(), {"Allocate": {"lent": "Fast", "pages": 1}},
        lend(bits("local_write", "write")), sent(3, LENT, PLACE), WORK,
        {"Send": {"pair": 1, "operation": 9, "remote": LENT, "local": [NOTHING, NOTHING], "flags": 2}},
        lend(bits("local_write", "read")), WORK, POLL,
    ],
    "region_evicted_under_a_window": [
        *connected(), {"Register": {"length": 64, "access": 1}}, {"Allocate": {"lent": "WindowTwo"}}, lend(GRANT), WORK,
        {"Deregister": {"key": 0}}, sent(3, {"key": 2, "length": 64}, {"key": 1, "length": 64}),
        {"Deregister": {"key": 0, "evict": True}}, WORK, POLL,
    ],
    "reregistered_while_it_is_written": [
        *connected(), sent(3, PLACE, {"length": 4000}), {"Work": {"packets": 3}},
        {"Reregister": {"key": 0, "length": 100, "access": 1}}, WORK, POLL,
    ],
    "atomic_write_and_flush": [*connected(), sent(8, {}, {"length": 8}), sent(21, PLACE), sent(21, {"offset": 1}), WORK, POLL],
    "completion_queue_shrinks_and_overruns": [
        *connected(), {"ResizeCq": {"capacity": 1}}, {"Arm": {}}, *[sent(0, {}, PLACE)] * 3, RECEIVE, RECEIVE, WORK, POLL,
    ],
    "send_queue_drained_and_on_again": [
        *connected(), sent(3, PLACE, {"length": 4000}), {"Work": {"packets": 2}},
        {"Modify": {"pair": 0, "attributes": {"state": 4}}}, sent(3, PLACE, PLACE), WORK,
        {"Modify": {"pair": 0, "attributes": {"state": 3}}}, WORK, POLL,
    ],
    "shared_queue_limit_and_resize": [
        {"SharedReceive": {"local": [PLACE, NOTHING]}}, {"ModifyShared": {"limit": 1}},
        {"ModifyShared": {"max_wr": 3, "limit": 3}}, {"ModifyShared": {"max_wr": 0}},
    ],
    "address_goes_and_comes_back": [
        *connected(), {"Gid": {}}, sent(3, PLACE, PLACE), WORK, {"Connect": {"pair": 0, "peer": 1}},
        {"Gid": {"there": True}}, {"Connect": {"pair": 0, "peer": 1, "retry": 0x6e}}, sent(3, PLACE, PLACE), WORK, POLL,
    ],
    "initiator_and_targets_of_two_xrc_domains": [
        create(4), create(5), create(5, other_pd=True),
        *[{"Connect": {"pair": pair, "peer": peer, "depth": 4, "retry": 0x6e}} for pair, peer in [(0, 1), (1, 0), (2, 0)]],
        {"SharedReceive": {"extended": True, "local": [PLACE, NOTHING]}},
        *[sent(0, {}, PLACE, flags=0x82)] * 2, WORK, {"Connect": {"pair": 0, "peer": 2, "depth": 4, "retry": 0x6e}},
        sent(0, {}, PLACE, flags=0x82), WORK, POLL,
    ],
}

if __name__ == "__main__":
    for target, step, seeds in [("transports", "Step", TRANSPORTS), ("verbs", "Call", VERBS)]:
        types = definitions(target)
        folder = HERE / "seeds" / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, steps in seeds.items():
            (folder / name).write_bytes(encode(types, f"Vec<{step}>", steps))
