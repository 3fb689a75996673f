package kvevents

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// pyzmqProgram publishes over libzmq, the library of vLLM and SGLang, what it is told
// by lines: "live N" publishes N batches, and "lost N" only keeps them, to be given again.
// Batch n stores block n.
const pyzmqProgram = `
import struct, sys, threading, zmq
ctx = zmq.Context()
pub = ctx.socket(zmq.XPUB); pub.bind_to_random_port("tcp://127.0.0.1")
router = ctx.socket(zmq.ROUTER); router.bind_to_random_port("tcp://127.0.0.1")
kept = []
def integer(n): return b"\xd3" + struct.pack(">q", n)
def batch(n):
    event = b"\x95\xabBlockStored\x91" + integer(n) + (integer(n-1) if n else b"\xc0") + b"\x92" + integer(n) + integer(n) + b"\x02"
    return b"\x92\xcb" + struct.pack(">d", 1.5) + b"\x91" + event
def again():
    while True:
        who, empty, start = router.recv_multipart()
        for n, payload in list(kept):
            if n >= int.from_bytes(start, "big"):
                router.send_multipart((who, b"", n.to_bytes(8, "big"), payload))
        router.send_multipart((who, b"", b"\xff"*8, b""))
threading.Thread(target=again, daemon=True).start()
print(pub.getsockopt_string(zmq.LAST_ENDPOINT), router.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
print(pub.recv() == b"\x01", flush=True)
for line in sys.stdin:
    what, count = line.split()
    for _ in range(int(count)):
        n = len(kept)
        kept.append((n, batch(n)))
        if what == "live":
            pub.send_multipart((b"topic", n.to_bytes(8, "big"), kept[-1][1]))
`

// TestPyzmq follows a publisher of the library that servers use.
func TestPyzmq(t *testing.T) {
	if exec.Command("python3", "-c", "import zmq").Run() != nil {
		if slices.Contains(strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ","), "pyzmq") {
			t.Fatal("pyzmq is required and not installed: python3 -m pip install pyzmq brings it")
		}
		t.Skip("SKIPPED: there is no pyzmq here; python3 -m pip install pyzmq brings it")
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-c", pyzmqProgram)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	lines := bufio.NewScanner(out)
	lines.Scan()
	events, replay, ok := strings.Cut(lines.Text(), " ")
	if !ok {
		t.Fatalf("it says %q", lines.Text())
	}
	f := followAt(t, Config{Events: events, Replay: replay, BlocksMax: 1 << 20, MessageBytesMax: 1 << 20, ConnectLimit: 500 * time.Millisecond})
	if lines.Scan(); lines.Text() != "True" {
		t.Fatalf("the subscription is %q", lines.Text())
	}
	made := 0
	for _, step := range []struct {
		what  string
		count int
	}{{"live", 3}, {"lost", 5000}, {"live", 1}} {
		io.WriteString(in, fmt.Sprintf("%s %d\n", step.what, step.count))
		if made += step.count; step.what == "lost" {
			continue
		}
		var tokens []int32
		for i := range made {
			tokens = append(tokens, int32(i), int32(i))
		}
		chains := chain(tokens, "")
		eventually(t, fmt.Sprintf("%d batches are known", made), func() bool {
			got, whole := f.Match(chains, false)
			return got == len(tokens) && whole
		})
	}
	if r := f.Report(); r.Blocks != made || r.Gaps != 1 {
		t.Errorf("%+v after %d batches", r, made)
	}
}
