package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// diskQuestions are long prompts, of which only one fits into the memory of the lab.
func diskQuestions() (qs []question) {
	for i := range 3 {
		qs = append(qs, question{id: string(rune('a' + i)), tokens: prompt(uint64(100+i), 150), options: greedy(8)})
	}
	return qs
}

// diskSetup has memory for 11 pages of the demo model.
func diskSetup(t *testing.T, dir string) labSetup {
	page := int64(newLab(t, labSetup{real: true}).info.PageBytes)
	return labSetup{real: true, cfg: Config{KVBytes: 11 * page, Threads: 1, DiskCache: dir}}
}

// idle waits until every block that ended sequences left is written.
func (b *lab) idle() {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if s := b.State(); s.Sequences == 0 && s.Running == 0 && s.Disk.Written > 0 && s.Disk.Written+s.Disk.Dropped >= 9 && s.Disk.Written == s.Disk.Blocks {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the blocks are not written: %+v", b.State().Disk)
		}
	}
}

// TestDiskCache: what was evicted, and what was there before a restart, is read and not computed; tokens
// and logits are those of an engine without a disk, and the usage says what was cached.
func TestDiskCache(t *testing.T) {
	qs := diskQuestions()
	want, wantBits := reference(t, labSetup{real: true, cfg: Config{Threads: 1}}, qs)
	for name, key := range map[string]string{"plain": "", "encrypted": strings.Repeat("0f", 32)} {
		t.Run(name, func(t *testing.T) {
			setup := diskSetup(t, filepath.Join(t.TempDir(), "kv"))
			if key != "" {
				setup.cfg.DiskCacheKeyFile = filepath.Join(t.TempDir(), "key")
				if err := os.WriteFile(setup.cfg.DiskCacheKeyFile, []byte(key+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for round := range 3 {
				b := newLab(t, setup)
				b.disk.patience, b.disk.readTime = patience, func() time.Duration { return 0 } // this machine may be busy
				for i, q := range qs {
					a := b.ask(q)
					mustEnd(t, q, a)
					sameAnswer(t, q, a, want[i])
					if got := b.logitsBits(q.id, 0); !slices.Equal(got, wantBits[q.id+"/0"]) {
						t.Errorf("round %d, %s: other logits than without a disk", round, q.id)
					}
					if cached := a.end.Usage.Cached; cached != 144*min(round, 1) || a.end.Usage.Computed != 150-cached {
						t.Errorf("round %d, %s: %+v", round, q.id, a.end.Usage)
					}
				}
				if round == 0 {
					b.idle()
				}
				b.mustIdle()
				if err := b.Close(); err != nil {
					t.Error(err)
				}
				if s := b.State().Disk; round > 0 && s.Read == 0 || s.Corrupted > 0 {
					t.Errorf("round %d: %+v", round, s)
				}
			}
		})
	}
}

// TestDiskCacheInSchedules: the disk changes no answer and no logits, whatever is paused, preempted or
// left out while blocks are read and written.
func TestDiskCacheInSchedules(t *testing.T) {
	page := int64(newLab(t, labSetup{real: true}).info.PageBytes)
	schedules := 8
	if testing.Short() || underRace {
		schedules = 3
	}
	invariance(t, labSetup{real: true, cfg: Config{KVBytes: 14 * page, Threads: 2, DiskCache: t.TempDir()}}, chaosQuestions(8, 12), schedules)
}
