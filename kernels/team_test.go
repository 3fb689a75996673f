package kernels

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTeamRunsEveryWorkerOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		team := NewTeam(workers)
		counts := make([]int, workers) // plain: Run must order the accesses
		const runs = 500
		for range runs {
			team.Run(func(worker int) { counts[worker]++ })
		}
		team.Close()
		for worker, n := range counts {
			if n != runs {
				t.Errorf("%d workers: worker %d ran %d times, want %d", workers, worker, n, runs)
			}
		}
	}
}

// TestTeamOnOneProcessor: a waiting worker leaves the processor to the one it waits for.
func TestTeamOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	team := NewTeam(5)
	defer team.Close()
	var counts [5]int
	for range 200 {
		team.Run(func(worker int) { counts[worker]++ })
	}
	if counts != [5]int{200, 200, 200, 200, 200} {
		t.Errorf("runs of each worker: %v, want 200", counts)
	}
}

func TestTeamWakesParkedWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		team := NewTeam(3)
		defer team.Close()
		var ran atomic.Int32
		for range 20 {
			synctest.Wait() // all workers are parked
			team.Run(func(worker int) {
				if worker > 0 {
					time.Sleep(time.Millisecond) // the caller parks too
				}
				ran.Add(1)
			})
		}
		if got := ran.Load(); got != 60 {
			t.Errorf("%d runs, want 60", got)
		}
	})
}

func TestTeamRaisesPanics(t *testing.T) {
	team := NewTeam(3)
	defer team.Close()
	for bad := range 3 {
		var ended atomic.Int32
		got := panicOf(func() {
			team.Run(func(worker int) {
				if worker == bad {
					panic(errors.New("boom"))
				}
				ended.Add(1)
			})
		})
		if !strings.Contains(fmt.Sprint(got), "boom") {
			t.Errorf("panic in worker %d: caller saw %v", bad, got)
		}
		if ended.Load() != 2 {
			t.Errorf("panic in worker %d: %d others had ended when Run returned, want 2", bad, ended.Load())
		}
	}
	var ran atomic.Int32
	team.Run(func(int) { ran.Add(1) })
	if ran.Load() != 3 {
		t.Errorf("after panics %d workers ran, want 3", ran.Load())
	}
}

func panicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

func TestTeamCloseEndsItsGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	team := NewTeam(6)
	team.Run(func(int) {})
	team.Close()
	for range 1000 { // a goroutine that ends may take a moment to be gone
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines after Close, %d before", runtime.NumGoroutine(), before)
}

func TestTeamRunAllocatesNothing(t *testing.T) {
	team := NewTeam(2)
	defer team.Close()
	var sink [2]int
	fn := func(worker int) { sink[worker]++ }
	if n := testing.AllocsPerRun(100, func() { team.Run(fn) }); n != 0 {
		t.Errorf("Run allocates %v times", n)
	}
}

func TestSplitCoversInTiles(t *testing.T) {
	for total := range 200 {
		for workers := 1; workers <= 9; workers++ {
			next := 0
			for worker := range workers {
				lo, hi := Split(total, RowTile, worker, workers)
				if lo != next || hi < lo || (lo%RowTile != 0 && lo != total) || (hi%RowTile != 0 && hi != total) {
					t.Fatalf("Split(%d, %d of %d) = [%d,%d) after %d", total, worker, workers, lo, hi, next)
				}
				next = hi
			}
			if next != total {
				t.Fatalf("Split(%d, %d workers) ends at %d", total, workers, next)
			}
		}
	}
}

func BenchmarkTeamRun(b *testing.B) {
	team := NewTeam(2)
	defer team.Close()
	fn := func(int) {}
	for b.Loop() {
		team.Run(fn)
	}
}

// TestPortionsCoverAll: the portions of every total cover it, in any order, without gap or overlap.
func TestPortionsCoverAll(t *testing.T) {
	for workers := 1; workers <= 9; workers++ {
		for _, tile := range []int{1, 16, 32} {
			for total := range 700 {
				seen := make([]int, total)
				for i := 0; ; i++ {
					lo, hi, ok := Portion(total, tile, i, workers)
					if !ok {
						break
					}
					if lo%tile != 0 && lo != total || hi%tile != 0 && hi != total || lo > hi {
						t.Fatalf("portion %d of %d for %d workers, tiles of %d: [%d,%d)", i, total, workers, tile, lo, hi)
					}
					for at := lo; at < hi; at++ {
						seen[at]++
					}
				}
				if slices.ContainsFunc(seen, func(n int) bool { return n != 1 }) {
					t.Fatalf("portions of %d for %d workers, tiles of %d: each row is in %v", total, workers, tile, seen)
				}
			}
		}
	}
}
