#!/usr/bin/env python3
"""Runs every peer against one broker, interleaved, and compares client CPU per message.

    run_all.py [--rounds 3] [--cases SUBSTR,...] [--peers NAME,...] [--target-s 5] [--out FILE]
    run_all.py --report FILE      # only print the table of an earlier results.jsonl

Environment: BENCH_URL, BENCH_ADMIN (broker addresses), BENCH_BUILD (where the peers were built, see
README.md), BENCH_PYTHON, BENCH_JAVA, BENCH_BROKER_PID (adds the broker's CPU), and the open slot:
BENCH_NEW_PEER, a command line with the same CLI as the others (its name is the "peer" it prints).
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("BENCH_BUILD") or os.path.join(tempfile.gettempdir(), "geminga-bench")
URL = os.environ.get("BENCH_URL", "pulsar://127.0.0.1:6650")
ADMIN = os.environ.get("BENCH_ADMIN", "http://127.0.0.1:8080")
BROKER = os.environ.get("BENCH_BROKER_PID")
WARMUP = int(os.environ.get("BENCH_WARMUP") or 20000)
SPARE = 20000  # messages in a backlog beyond its nominal count

# case, mode, topic domain, size, messages in the shared backlog (consume), first guess of N, fixed N
CASES = [
    ("produce 100 B", "produce", "persistent", 100, 0, 100_000, 0),
    ("produce 1 KiB", "produce", "persistent", 1024, 0, 50_000, 0),
    ("produce 10 KiB", "produce", "persistent", 10240, 0, 5_000, 0),
    ("consume 100 B, ack each", "consume", "persistent", 100, 3_000_000, 100_000, 0),
    ("consume 1 KiB, ack each", "consume", "persistent", 1024, 1_000_000, 50_000, 0),
    ("consume 10 KiB, ack each", "consume", "persistent", 10240, 120_000, 5_000, 0),
    ("consume 100 B, cumulative ack", "consume_cum", "persistent", 100, 3_000_000, 100_000, 0),
    ("produce_sync 100 B", "produce_sync", "persistent", 100, 0, 0, 800),
    ("latency 100 B", "latency", "persistent", 100, 0, 0, 250),
    ("latency 100 B, non-persistent", "latency", "non-persistent", 100, 0, 100, 0),
]


def peers():
    java = [os.environ.get("BENCH_JAVA", "java"), "-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
            "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
            "-Dio.netty.tryReflectionSetAccessible=true", "-Dio.netty.leakDetectionLevel=disabled",
            "-cp", os.path.join(BUILD, "java", "classes") + ":" + os.path.join(BUILD, "java", "lib", "*"),
            "Bench"]
    python = os.environ.get("BENCH_PYTHON") or os.path.join(BUILD, "venv", "bin", "python")
    all_peers = {
        "java": java,
        "rust-pulsar": [os.path.join(BUILD, "rust", "release", "rust-peer")],
        "go": [os.path.join(BUILD, "go-peer")],
        "cpp": [os.path.join(BUILD, "cpp-peer")],
        "python": [python, os.path.join(HERE, "peers", "python", "bench.py")],
    }
    if os.environ.get("BENCH_NEW_PEER"):
        all_peers["new"] = shlex.split(os.environ["BENCH_NEW_PEER"])
    return all_peers


def admin(method, path, body=None):
    req = urllib.request.Request(ADMIN + "/admin/v2/" + path, method=method,
                                 data=None if body is None else json.dumps(body).encode(),
                                 headers={"content-type": "application/json"})
    # A broker that has gigabytes to write after the rows of large messages can be slow to answer: three tries.
    for left in (2, 1, 0):
        try:
            with urllib.request.urlopen(req, timeout=60) as r:
                data = r.read()
                return json.loads(data) if data else None
        except urllib.error.HTTPError as e:
            return {"error": e.code}
        except (TimeoutError, urllib.error.URLError):
            if not left:
                raise
            time.sleep(5)


def topic_path(topic):
    return topic.replace("://", "/")


def ticks(pid):
    with open("/proc/%s/stat" % pid) as f:
        v = f.read().rsplit(")", 1)[1].split()
    return (int(v[11]) + int(v[12])) / os.sysconf("SC_CLK_TCK")


def steal():
    with open("/proc/stat") as f:
        v = list(map(int, f.readline().split()[1:]))
    return v[7], sum(v)


def run(cmd, mode, topic, n, size, env=None, timeout=120):
    e = dict(os.environ, **(env or {}))
    b0, s0 = ticks(BROKER) if BROKER else 0, steal()
    load = os.getloadavg()[0]
    try:
        p = subprocess.run(cmd + [mode, URL, topic, str(n), str(size)], env=e, timeout=timeout,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except subprocess.TimeoutExpired:
        return {"error": "timeout after %d s" % timeout}
    lines = [x for x in p.stdout.splitlines() if x.startswith("{")]
    if p.returncode or not lines:
        return {"error": "rc %d: %s" % (p.returncode, p.stderr.strip()[-300:])}
    r = json.loads(lines[-1])
    s1 = steal()
    r["load1"] = load
    r["warmup"] = int(e.get("BENCH_WARMUP_SYNC" if mode in ("produce_sync", "latency") else "BENCH_WARMUP")
                      or (2000 if mode in ("produce_sync", "latency") else 20000))
    r["steal_pct"] = round(100 * (s1[0] - s0[0]) / max(1, s1[1] - s0[1]), 2)
    if BROKER:
        r["broker_cpu_s"] = round(ticks(BROKER) - b0, 2)
    return r


def make_backlog(all_peers, topic, total, size):
    admin("PUT", topic_path(topic))
    admin("PUT", topic_path(topic) + "/subscription/hold", {"ledgerId": -1, "entryId": -1})
    for name in ("cpp", "java", "go", "rust-pulsar", "python"):
        if name in all_peers:
            r = run(all_peers[name], "produce", topic, total, size, {"BENCH_WARMUP": str(SPARE)}, 600)
            if "error" not in r:
                print("# backlog %s: %d messages by %s" % (topic, total + SPARE, name), flush=True)
                return
            print("# %s failed to fill the backlog: %s" % (name, r["error"]), flush=True)
    sys.exit("no peer could fill the backlog")


def one(cmd, case, stamp, n, tag, backlog):
    _, mode, domain, size, total, _, fixed = case
    env = {}
    if mode in ("produce_sync", "latency"):
        env["BENCH_WARMUP_SYNC"] = str(fixed // 4 or 200)
    if total:
        env["BENCH_SUB"] = sub = "s" + tag
        r = run(cmd, mode, backlog, n, size, env)
        st = admin("GET", topic_path(backlog) + "/stats?getPreciseBacklog=true")
        subs = st.get("subscriptions", {})
        if sub in subs and subs.get("hold", {}).get("msgBacklog"):
            done = 1 - subs[sub]["msgBacklog"] / subs["hold"]["msgBacklog"]
            r["acked_vs_expected"] = round(done * (total + SPARE) / (n + WARMUP), 4)
        admin("DELETE", topic_path(backlog) + "/subscription/" + sub + "?force=true")
        return r
    topic = "%s://public/default/bench-%s-%s" % (domain, stamp, tag)
    r = run(cmd, mode, topic, n, size, env)
    admin("DELETE", topic_path(topic) + "?force=true")
    return r


def report(path):
    rows, order = {}, []
    with open(path) as f:
        for line in f:
            r = json.loads(line)
            if r["case"] not in order:
                order.append(r["case"])
            rows.setdefault((r["case"], r["peer_slot"]), []).append(r)

    def fmt(v, d=0):
        return "-" if v is None else format(v, ",.%df" % d)

    for case in order:
        ok = {p: [r for r in v if "error" not in r] for (c, p), v in rows.items() if c == case}
        bad = {p: [r for r in v if "error" in r] for (c, p), v in rows.items() if c == case}

        def med(p, k):
            v = [r[k] for r in ok[p] if r.get(k) is not None]
            return statistics.median(v) if v else None

        good = [p for p in ok if ok[p]]
        if not good:
            print("\n### %s\n\nno result" % case)
            continue
        best = min(med(p, "cpu_us_per_msg") for p in good)
        fast = max(med(p, "msgs_per_s") for p in good)
        receipt = any("receipt_p50_us" in r for p in good for r in ok[p])
        print("\n### %s\n" % case)
        print("| peer | client CPU us/msg | min..max | x best | user/sys us | msg/s | x best | p50 us | p99 us |"
              + (" receipt p50 | receipt p99 |" if receipt else "") + " RSS MB | broker CPU us/msg | runs |")
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|" + ("--:|--:|" if receipt else "") + "--:|--:|--:|")
        for p in sorted(good, key=lambda p: med(p, "cpu_us_per_msg")):
            c = [r["cpu_us_per_msg"] for r in ok[p]]
            user = statistics.median(r["cpu_user_s"] / r["n"] * 1e6 for r in ok[p])
            sys_ = statistics.median(r["cpu_sys_s"] / r["n"] * 1e6 for r in ok[p])
            brk = [r["broker_cpu_s"] / (r["n"] + r["warmup"]) * 1e6 for r in ok[p] if "broker_cpu_s" in r]
            m = statistics.median(c)
            note = " +%d failed" % len(bad[p]) if bad[p] else ""
            low = [r["acked_vs_expected"] for r in ok[p] if r.get("acked_vs_expected", 1) < .97]
            note += " (acked %.0f%%)" % (100 * min(low)) if low else ""
            print("| %s | **%.2f** | %.2f..%.2f | %.2f | %.2f/%.2f | %s | %.2f | %s | %s |%s %s | %s | %d%s |" % (
                p, m, min(c), max(c), m / best, user, sys_, fmt(med(p, "msgs_per_s")),
                med(p, "msgs_per_s") / fast, fmt(med(p, "p50_us")), fmt(med(p, "p99_us")),
                " %s | %s |" % (fmt(med(p, "receipt_p50_us")), fmt(med(p, "receipt_p99_us"))) if receipt else "",
                fmt(med(p, "max_rss_mb")), fmt(statistics.median(brk), 2) if brk else "-", len(ok[p]), note))
        for p in ok:
            if not ok[p]:
                print("| %s | failed: %s |" % (p, bad[p][0]["error"].replace("|", "/").replace("\n", " ")[:160]))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--cases", default="")
    a.add_argument("--peers", default="")
    a.add_argument("--target-s", type=float, default=5)
    a.add_argument("--out", default=os.path.join(BUILD, "results.jsonl"))
    a.add_argument("--label", default="", help="added to each case's name, e.g. for another warm-up")
    a.add_argument("--report")
    a = a.parse_args()
    if a.report:
        return report(a.report)
    every = peers()
    sel = {k: v for k, v in every.items() if not a.peers or k in a.peers.split(",")}
    cases = [c for c in CASES if not a.cases or any(s in c[0] for s in a.cases.split(","))]
    stamp = format(int(time.time()), "x")
    backlogs = {}
    os.makedirs(os.path.dirname(os.path.abspath(a.out)), exist_ok=True)
    with open(a.out, "a") as out:
        for case in cases:
            name, mode, domain, size, total, guess, fixed = case
            if total and (size, total) not in backlogs:
                t = "persistent://public/default/bench-%s-backlog-%d" % (stamp, size)
                make_backlog(every, t, total, size)
                backlogs[size, total] = t
            backlog = backlogs.get((size, total))
            counts = {}
            for p, cmd in sel.items():
                if fixed:
                    counts[p] = fixed
                    continue
                # A short trial sizes each peer's run to about target_s; its result is not kept.
                first = max(guess // 5, 100) if p == "python" else guess
                r = one(cmd, case, stamp, first, "%s-%s-%d-cal" % (p, mode, size), backlog)
                if "error" in r:
                    print("# %s %s: %s" % (name, p, r["error"]), flush=True)
                    counts[p] = first
                    continue
                n = int(r["msgs_per_s"] * a.target_s)
                counts[p] = min(max(n, first), total + SPARE - WARMUP) if total else max(n, first)
            for rnd in range(a.rounds):
                order = list(sel)
                order = order[rnd % len(order):] + order[:rnd % len(order)]
                for p in order:
                    r = one(sel[p], case, stamp, counts[p], "%s-%s-%d-%d" % (p, mode, size, rnd), backlog)
                    r.update(case=name + a.label, peer_slot=r.get("peer", p) if p == "new" else p, round=rnd,
                             time=int(time.time()))
                    out.write(json.dumps(r) + "\n")
                    out.flush()
                    print("%-32s %-12s %s" % (name, p, r.get("error") or "%.2f us/msg  %d msg/s" % (
                        r["cpu_us_per_msg"], r["msgs_per_s"])), flush=True)
    for t in backlogs.values():
        admin("DELETE", topic_path(t) + "?force=true")
    report(a.out)


if __name__ == "__main__":
    main()
