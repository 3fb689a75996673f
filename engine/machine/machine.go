// Package machine measures the machine: its usable memory, the size of its
// last-level cache, and the rate at which it reads memory.
//
// Goal: numbers for predictions that are right inside a container too. 0 means
// unknown. Non-goal: decisions based on these numbers.
//
// Nothing is cached; every call measures again. The paths are Linux's, under a
// root that tests replace.
package machine

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Available returns the bytes of memory that a process can still use without
// swapping: what the kernel reports as available, or less if a control group has
// a limit. root is the root of the file system.
func Available(root fs.FS) int {
	least := meminfo(root)
	for line := range lines(root, "proc/self/cgroup") {
		// hierarchy:controllers:path, of which version 2 has no controllers
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		at, limit, usage := "sys/fs/cgroup", "memory.max", "memory.current"
		if parts[1] != "" {
			if parts[1] != "memory" {
				continue
			}
			at, limit, usage = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
		}
		// Every group on the way up has a limit of its own.
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			if left, ok := groupLeft(root, path.Join(at, group), limit, usage); ok && (least == 0 || left < least) {
				least = left
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}

// groupLeft returns the bytes that one control group has left. Cached files
// count as free, because they can be read again.
func groupLeft(root fs.FS, dir, limitName, usageName string) (int, bool) {
	limit, ok := number(root, path.Join(dir, limitName))
	usage, ok2 := number(root, path.Join(dir, usageName))
	if !ok || !ok2 {
		return 0, false // no such group, or no limit: "max"
	}
	for line := range lines(root, path.Join(dir, "memory.stat")) {
		if text, ok := strings.CutPrefix(line, "inactive_file "); ok {
			n, _ := strconv.Atoi(text)
			usage -= n
		}
	}
	return max(1, limit-max(0, usage)), true
}

// meminfo returns MemAvailable, in bytes.
func meminfo(root fs.FS) int {
	for line := range lines(root, "proc/meminfo") {
		if text, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(text, "kB")))
			return n << 10
		}
	}
	return 0
}

// Resident returns the bytes of memory that this process uses now, with mapped
// files.
func Resident(root fs.FS) int {
	for line := range lines(root, "proc/self/status") {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(text, "kB")))
			return n << 10
		}
	}
	return 0
}

// LastCache returns the size of the processor's last-level cache, in bytes.
func LastCache(root fs.FS) int {
	largest := 0
	names, _ := fs.Glob(root, "sys/devices/system/cpu/cpu0/cache/index*/size")
	for _, name := range names {
		text, _ := fs.ReadFile(root, name)
		number := strings.TrimSpace(string(text))
		unit := 1
		for suffix, size := range map[string]int{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30} {
			if rest, ok := strings.CutSuffix(number, suffix); ok {
				number, unit = rest, size
			}
		}
		if n, err := strconv.Atoi(number); err == nil && n < math.MaxInt>>30 {
			largest = max(largest, n*unit)
		}
	}
	return largest
}

func number(root fs.FS, name string) (int, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}

// lines iterates over the lines of a file; none if it cannot be read.
func lines(root fs.FS, name string) func(func(string) bool) {
	text, _ := fs.ReadFile(root, name)
	return func(yield func(string) bool) {
		for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
			if !yield(in.Text()) {
				return
			}
		}
	}
}
