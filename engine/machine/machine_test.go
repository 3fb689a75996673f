package machine

import (
	"os"
	"testing"
	"testing/fstest"
	"time"
)

func files(pairs ...string) fstest.MapFS {
	root := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		root[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return root
}

func TestAvailable(t *testing.T) {
	const meminfo = "MemTotal:       2000 kB\nMemAvailable:    1000 kB\n"
	for name, c := range map[string]struct {
		root fstest.MapFS
		want int
	}{
		"nothing said": {files(), 0},
		"no group":     {files("proc/meminfo", meminfo), 1000 << 10},
		"broken":       {files("proc/meminfo", "MemAvailable: many kB", "proc/self/cgroup", "0\n1:::::\n::\n"), 0},
		"no limit":     {files("proc/meminfo", meminfo, "proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "max\n", "sys/fs/cgroup/a/memory.current", "5\n"), 1000 << 10},
		"own limit": {files("proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "9000\n",
			"sys/fs/cgroup/memory.current", "5000\n", "sys/fs/cgroup/memory.stat", "active_file 7\ninactive_file 1000\n"), 5000},
		"limit above": {files("proc/meminfo", meminfo, "proc/self/cgroup", "0::/a/b\n", "sys/fs/cgroup/a/memory.max", "700\n", "sys/fs/cgroup/a/memory.current", "100",
			"sys/fs/cgroup/a/b/memory.max", "9000\n", "sys/fs/cgroup/a/b/memory.current", "5000\n"), 600},
		"version 1": {files("proc/meminfo", meminfo, "proc/self/cgroup", "3:cpu:/x\n4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "300",
			"sys/fs/cgroup/memory/x/memory.usage_in_bytes", "100"), 200},
		"used up":  {files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "100", "sys/fs/cgroup/memory.current", "200"), 1},
		"way out":  {files("proc/self/cgroup", "0::/../../x\n", "sys/fs/cgroup/x/memory.max", "100", "sys/fs/cgroup/x/memory.current", "40"), 60},
		"relative": {files("proc/self/cgroup", "0::x\n", "sys/fs/cgroup/x/memory.max", "100", "sys/fs/cgroup/x/memory.current", "40"), 60},
	} {
		if got := Available(c.root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if _, err := os.Stat("/proc/meminfo"); err == nil && Available(os.DirFS("/")) < 1<<20 {
		t.Errorf("this machine has %d bytes left", Available(os.DirFS("/")))
	}
}

func TestResident(t *testing.T) {
	if got := Resident(files("proc/self/status", "VmPeak:\t 900 kB\nVmRSS:\t     123 kB\n")); got != 123<<10 {
		t.Errorf("%d bytes", got)
	}
	if got := Resident(files()); got != 0 {
		t.Errorf("of nothing said: %d bytes", got)
	}
}

func TestLastCache(t *testing.T) {
	const dir = "sys/devices/system/cpu/cpu0/cache/"
	if got := LastCache(files(dir+"index0/size", "48K\n", dir+"index3/size", "32M\n", dir+"index2/size", "1024K\n", dir+"index4/size", "x\n")); got != 32<<20 {
		t.Errorf("the last cache has %d bytes", got)
	}
	if got := LastCache(files()); got != 0 {
		t.Errorf("no cache has %d bytes", got)
	}
}

func TestReadRate(t *testing.T) {
	if rate := ReadRate(2, 0, 20*time.Millisecond); !(rate > 1e6 && rate < 1e15) {
		t.Errorf("%g bytes a second", rate)
	}
	words := make([]uint64, 1003)
	want := uint64(0)
	for i := range words {
		words[i] = uint64(i * i)
		want += words[i]
	}
	if got := sum(words); got != want {
		t.Errorf("the sum is %d, want %d", got, want)
	}
}
