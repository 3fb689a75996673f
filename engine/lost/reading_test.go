package lost

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
)

func files(all map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range all {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

const someStat = "cpu  100 10 50 9000 5 1 2 30 7 0\ncpu0 50 5 25 4500 5 1 2 15 0 0\ncpu1 50 5 25 4500 0 0 0 15 0 0\nintr 5\ncpu9 nothing\n"

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		root fstest.MapFS
		want Reading
	}{
		"version 2": {files(map[string]string{
			"proc/stat": someStat, "proc/self/cgroup": "0::/kube/pod/engine\n",
			"proc/self/task/1/schedstat": "5 1000 2\n", "proc/self/task/2/schedstat": "5 500 2\n",
			"sys/fs/cgroup/kube/pod/engine/cpu.stat":        "usage_usec 5\nnr_throttled 7\nthrottled_usec 40\n",
			"sys/fs/cgroup/kube/pod/cpu.stat":               "throttled_usec 2\n",
			"sys/fs/cgroup/kube/pod/engine/cpu.pressure":    "some avg10=0.00 avg60=0.00 avg300=0.00 total=70\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=60\n",
			"sys/fs/cgroup/kube/pod/engine/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=3\n",
			"sys/fs/cgroup/kube/pod/engine/io.pressure":     "some avg10=0.00 avg60=0.00 avg300=0.00 total=4\n",
			"proc/pressure/cpu":                             "some avg10=0.00 avg60=0.00 avg300=0.00 total=999999\n",
		}), Reading{Busy: 1630 * time.Millisecond, Steal: 300 * time.Millisecond, Processors: 2, Waited: 1500, Delayed: true,
			Throttled: 42 * time.Microsecond, Pressure: 70 * time.Microsecond, Paging: 7 * time.Microsecond}},
		"version 1": {files(map[string]string{
			"proc/stat": someStat, "proc/self/cgroup": "3:memory:/a\n2:cpu,cpuacct:/docker/x\n0::/\n",
			"sys/fs/cgroup/cpu/cpu.stat": "nr_periods 1\nnr_throttled 1\nthrottled_time 12345\n", // the group is mounted as the root
			"proc/pressure/cpu":          "some avg10=0.00 avg60=0.00 avg300=0.00 total=8\n", "proc/pressure/memory": "some total=1\n",
		}), Reading{Busy: 1630 * time.Millisecond, Steal: 300 * time.Millisecond, Processors: 2, Throttled: 12345, Pressure: 8 * time.Microsecond, Paging: time.Microsecond}},
		"nothing": {files(nil), Reading{}},
	} {
		c.want.At, c.want.CPU, c.want.Faults = 5, 6, 7
		if got := Read(c.root, 5, 6, 7); got != c.want {
			t.Errorf("%s: read\n%+v, want\n%+v", name, got, c.want)
		}
	}
}

func TestThisMachineIsRead(t *testing.T) {
	if _, err := os.Stat("/proc/stat"); err != nil {
		t.Skip("this machine has no /proc")
	}
	cpu, _ := Used()
	if r := Read(os.DirFS("/"), 1, cpu, 0); r.Busy <= 0 || r.Processors < 1 {
		t.Errorf("read %+v", r)
	}
	w := Watch(os.DirFS("/"), cost.Cost{})
	w.Began(1)
	w.Ended(Step{Began: 1, Ended: 2})
	w.Close()
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{someStat, "some avg10=0.00 total=5\n", "throttled_usec 5\nthrottled_time 7", "0::/a/../..\n2:cpu:/x\n", "5 6 7\n",
		"12 (a) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14\n", "cpu " + strings.Repeat("9", 30)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		busy, steal, n := parseStat(b)
		pressure, _ := parsePressure(b)
		delay, _ := parseDelay(b)
		p, ok := parseProcess(b)
		if busy < 0 || steal < 0 || n < 0 || pressure < 0 || delay < 0 || parseThrottled(b) < 0 || p.used < 0 {
			t.Errorf("negative: %v %v %v %v %v %v", busy, steal, n, pressure, delay, p)
		}
		if ok && len([]rune(p.name)) > nameMax {
			t.Errorf("a name of %d", len(p.name))
		}
		for _, dir := range groups(b) {
			if !strings.HasPrefix(dir, "sys/fs/cgroup") {
				t.Errorf("a group at %q", dir)
			}
		}
	})
}

func TestBusiest(t *testing.T) {
	stat := func(name, user string) string {
		return "7 (" + name + ") R 1 1 1 0 -1 4194304 0 0 0 0 " + user + " 0 0 0 20 0 1 0 5 0 0\n"
	}
	before := processes(files(map[string]string{"proc/7/stat": stat("yes", "0"), "proc/8/stat": stat("yes", "0"), "proc/9/stat": stat("a) (b", "100"), "proc/10/stat": stat("idle", "5"), "proc/12/stat": stat("self", "0"), "proc/self/stat": "x"}), 12)
	after := processes(files(map[string]string{"proc/7/stat": stat("yes", "60"), "proc/8/stat": stat("yes", "40"), "proc/9/stat": stat("a) (b", "130"), "proc/10/stat": stat("idle", "5"), "proc/11/stat": stat("new", "9000"), "proc/12/stat": stat("self", "900")}), 12)
	want := "yes (2 processes, 1.0 processors) and a) (b (process 9, 0.3 processors)"
	if got := busiest(before, after, time.Second); got != want {
		t.Errorf("busiest are %q, want %q", got, want)
	}
	if got := busiest(after, after, time.Second); got != "" {
		t.Errorf("nobody ran, and busiest is %q", got)
	}
}

// TestWakingTellsWhatWasLost: a process that was stopped without a step runs one
// before the Watcher has its turn.
func TestWakingTellsWhatWasLost(t *testing.T) {
	now := wire.Monotonic()
	w := &Watcher{root: fstest.MapFS{}}
	w.meter.Settle(Reading{At: now - int64(2*time.Second)})
	w.rest(now - int64(1500*time.Millisecond+look))
	w.Woke(now)
	w.Woke(now + 1)
	l := w.Take(nil)
	if len(l) != 1 || l[0].End != now || l[0].By[wire.LostFrozen] < 1400*time.Millisecond {
		t.Errorf("lost %+v", l)
	}
}
