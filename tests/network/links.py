"""Nodes made of network namespaces on a switch, each link with a stated rate and latency.

Run inside a fresh user and network namespace (`unshare -rn`): namespaces hang on processes, so nothing is left behind.
The rate is kept by `tc tbf` on both ends of a link. The latency is kept by `tc netem` where the kernel has it, else by
the switch itself: a loop that forwards frames after a delay.
"""

import contextlib
import ctypes
import heapq
import json
import os
import selectors
import socket
import subprocess
import sys
import time

ETH_P_ALL = 3
SOL_PACKET, PACKET_VNET_HDR = 263, 15
PR_SET_TIMERSLACK = 29
FRAME_BYTES = 10 + 14 + 65536
# What a sender may hand over uncut, and the bucket that just holds it: a larger one lets a burst pass above the rate.
UNCUT_BYTES, BURST_BYTES = 9_000, 10_000
QUEUE_BYTES = 4_000_000


def sh(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def spawn(*words: str, **more) -> subprocess.Popen:
    """Start a process that ends with this one."""
    return subprocess.Popen(("setpriv", "--pdeathsig", "KILL", *words), **more)


def on(node: subprocess.Popen, *words: str) -> tuple[str, ...]:
    return ("nsenter", "--preserve-credentials", "-t", str(node.pid), "-n", *words)


def address(i: int) -> str:
    return f"10.77.0.{i + 1}"


def build(*, nodes: int, bits_per_s: float) -> list[subprocess.Popen]:
    """Namespaces with one shaped interface each; the other ends, `p0`, `p1`, ..., stay here."""
    made = []
    shape = (
        "root",
        "handle",
        "1:",
        "tbf",
        "rate",
        f"{bits_per_s:.0f}bit",
        "burst",
        str(BURST_BYTES),
        "limit",
        str(QUEUE_BYTES),
    )
    for i in range(nodes):
        node = spawn("unshare", "-n", "sleep", "600")
        made.append(node)
        # The namespace exists once the process has left ours.
        while os.readlink(f"/proc/{node.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.005)
        sh("ip", "link", "add", f"p{i}", "type", "veth", "peer", "name", f"n{i}")
        sh("ip", "link", "set", f"n{i}", "netns", str(node.pid))
        sh(*on(node, "ip", "link", "set", f"n{i}", "gso_max_size", str(UNCUT_BYTES)))
        sh("ip", "link", "set", f"p{i}", "gso_max_size", str(UNCUT_BYTES))
        sh(*on(node, "ip", "addr", "add", f"{address(i)}/24", "dev", f"n{i}"))
        sh(*on(node, "ip", "link", "set", "lo", "up"))
        sh(*on(node, "ip", "link", "set", f"n{i}", "up"))
        sh("ip", "link", "set", f"p{i}", "up")
        sh(*on(node, "tc", "qdisc", "add", "dev", f"n{i}", *shape))
        sh("tc", "qdisc", "add", "dev", f"p{i}", *shape)
    return made


def bridge_with_netem(*, nodes: int, latency_s: float) -> bool:
    """Join the links by a bridge that delays; False where the kernel lacks either."""
    try:
        sh("ip", "link", "add", "sw", "type", "bridge")
        sh("ip", "link", "set", "sw", "up")
        for i in range(nodes):
            delay = ("netem", "delay", f"{latency_s * 1e6:.0f}us", "limit", "20000")
            sh("tc", "qdisc", "add", "dev", f"p{i}", "parent", "1:1", "handle", "10:", *delay)
        for i in range(nodes):
            sh("ip", "link", "set", f"p{i}", "master", "sw")
    except subprocess.CalledProcessError:
        subprocess.run(("ip", "link", "del", "sw"), check=False, capture_output=True)
        return False
    return True


class Switch:
    """Forwards frames between the links, each `latency_s` after it came; learns addresses as a switch does."""

    def __init__(self, *, nodes: int, latency_s: float) -> None:
        self.latency_s, self.waiting, self.count = latency_s, [], 0
        self.port_of: dict[bytes, int] = {}
        self.ports, self.selector = [], selectors.SelectSelector()  # microseconds; epoll waits whole milliseconds
        for i in range(nodes):
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
            port.setsockopt(SOL_PACKET, 23, 1)  # PACKET_IGNORE_OUTGOING
            for forced, usual in ((33, socket.SO_RCVBUF), (32, socket.SO_SNDBUF)):
                try:
                    port.setsockopt(socket.SOL_SOCKET, forced, 64 << 20)
                except PermissionError:
                    port.setsockopt(socket.SOL_SOCKET, usual, 64 << 20)
            port.bind((f"p{i}", ETH_P_ALL))
            port.setblocking(False)
            self.ports.append(port)
            self.selector.register(port, selectors.EVENT_READ, i)

    def serve_until(self, done) -> None:
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        while not done():
            pause = 0.05
            if self.waiting:
                pause = max(0.0, min(pause, self.waiting[0][0] - time.monotonic()))
            for key, _ in self.selector.select(pause):
                self._take(key.data)
            self._deliver()

    def _take(self, port: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(16):
                frame = self.ports[port].recv(FRAME_BYTES)
                self.port_of[frame[16:22]] = port
                self.count += 1
                heapq.heappush(self.waiting, (time.monotonic() + self.latency_s, self.count, port, frame))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            _, _, source, frame = heapq.heappop(self.waiting)
            known = self.port_of.get(frame[10:16])
            for i in range(len(self.ports)) if known is None else (known,):
                if i != source:
                    with contextlib.suppress(OSError):
                        self.ports[i].send(frame)


def main() -> int:
    """Arguments: nodes, bits a second, latency in seconds, then the command; {rank} and {address} are filled in."""
    nodes, bits_per_s, latency_s, command = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
    made = build(nodes=nodes, bits_per_s=bits_per_s)
    sh("ip", "link", "set", "lo", "up")
    how = "netem" if bridge_with_netem(nodes=nodes, latency_s=latency_s) else "switch"
    workers = []
    for i, node in enumerate(made):
        words = [w.format(rank=i, address=address(i), interface=f"n{i}") for w in command]
        workers.append(spawn(*on(node, *words), stdout=subprocess.PIPE if i == 0 else subprocess.DEVNULL))
    running = lambda: any(w.poll() is None for w in workers)  # noqa: E731
    if how == "netem":
        while running():
            time.sleep(0.05)
    else:
        Switch(nodes=nodes, latency_s=latency_s).serve_until(lambda: not running())
    for node in made:
        node.kill()
    print(json.dumps({"latency_by": how, "answer": json.loads(workers[0].stdout.read() or "null")}))
    return max(w.returncode for w in workers)


if __name__ == "__main__":
    raise SystemExit(main())
