"""A plan for a GPU that is not there, so that the session's timed part runs against `fake_worker`."""

from __future__ import annotations


def main(channel):
    message = channel.receive()
    count = len(message["bindings"])
    names = message["region"].split("# candidates: ")[1].split()
    offered = [
        {"name": n, "tool": n.split(":")[0].split("-")[0], "call": f"call {n}", "note": "", "available": True,
         "reason": "", "source": ""}
        for n in names
    ]  # fmt: skip
    channel.send(
        {
            "id": message["id"],
            "result": {
                "region": message["region"],
                "device": {"name": "NVIDIA H200", "index": 7, "free_bytes": 1e11, "l2_bytes": 5e7},
                "software": {"torch": "none"},
                "candidates": offered,
                "coverage": "no library covers it",
                # 480 MB at 4.8 TB/s: 89.6 µs beyond L2
                "bindings": [
                    {
                        "floor_us": 50.0,
                        "bytes_touched": 480e6,
                        "flops": 0,
                        "matmul_dtype": None,
                        "set_bytes": 1,
                        "working_bytes": 1,
                    }
                ]
                * count,
                "reduced": None,
                "reduced_wide": None,
            },
        }
    )
