package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// fault is one thing that goes wrong, and is well again when do returns. It is not
// cut short by the end of the storm.
type fault struct {
	name string
	do   func(context.Context, *scene, *rand.Rand) error
}

// failedOver takes 10 s, until the Sentinel makes the old master a replica.
const failedOver = "Redis failed over"

var faults = []fault{
	{"Redis flushed", func(ctx context.Context, s *scene, _ *rand.Rand) error {
		return s.withMaster(ctx, func(m *server) error {
			c := m.client()
			defer c.Close()
			return c.FlushAll(ctx).Err()
		})
	}},
	{"Redis paused", func(ctx context.Context, s *scene, rnd *rand.Rand) error {
		return s.withMaster(ctx, func(m *server) error {
			c := m.client()
			defer c.Close()
			return c.Do(ctx, "CLIENT", "PAUSE", 20+rnd.IntN(800), "ALL").Err()
		})
	}},
	{"engine stopped", func(_ context.Context, s *scene, rnd *rand.Rand) error {
		pid, err := s.gateways[rnd.IntN(len(s.gateways))].engine()
		if err != nil {
			return err
		}
		return freeze(pid, time.Duration(100+rnd.IntN(2000))*time.Millisecond)
	}},
	{failedOver, func(ctx context.Context, s *scene, _ *rand.Rand) error {
		if err := s.replicated(ctx); err != nil {
			return err
		}
		old, err := s.master(ctx)
		if err != nil {
			return err
		}
		// A replica that was away just now is none that the Sentinel promotes, until it has
		// looked at it again.
		if err := until(ctx, "the Sentinel finds a replica to promote", func() bool {
			return !strings.HasPrefix(fmt.Sprint(s.watch.Failover(ctx, masterName).Err()), "NOGOODSLAVE")
		}); err != nil {
			return err
		}
		return s.moved(ctx, old)
	}},
	{"Redis frozen", func(ctx context.Context, s *scene, rnd *rand.Rand) error {
		return s.withMaster(ctx, func(m *server) error {
			return freeze(m.cmd.Process.Pid, time.Duration(20+rnd.IntN(int(downAfter.Milliseconds())/2))*time.Millisecond)
		})
	}},
	{"engine starved", func(ctx context.Context, _ *scene, rnd *rand.Rand) error {
		ctx, stop := context.WithTimeout(ctx, time.Duration(200+rnd.IntN(1000))*time.Millisecond)
		defer stop()
		for range 2*runtime.NumCPU() - 1 {
			go spin(ctx)
		}
		spin(ctx)
		return nil
	}},
	{"Redis killed", func(ctx context.Context, s *scene, _ *rand.Rand) error {
		if err := s.replicated(ctx); err != nil {
			return err
		}
		old, err := s.master(ctx)
		if err != nil {
			return err
		}
		old.end(syscall.SIGKILL)
		if err := s.moved(ctx, old); err != nil {
			return err
		}
		old.args = withoutReplica(old.args) // the Sentinel says whose replica it is now
		return errors.Join(old.begin(nil), old.answers(ctx))
	}},
}

// rage has each fault once and then any, until ctx ends or there were as many as
// asked for. It counts them.
func (s *scene) rage(ctx context.Context, o *options, rnd *rand.Rand) (counts map[string]int, err error) {
	counts = map[string]int{}
	whole := context.WithoutCancel(ctx)
	for i := 0; (o.most == 0 || i < o.most) && pause(ctx, o.calm); i++ {
		f := &o.faults[i%len(o.faults)]
		if i >= len(o.faults) {
			f = &o.faults[rnd.IntN(len(o.faults))]
		}
		fmt.Fprintf(o.progress, "%s  %s\n", time.Now().Format(time.TimeOnly), f.name)
		if err := f.do(whole, s, rnd); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		counts[f.name]++
	}
	return counts, nil
}

func (s *scene) withMaster(ctx context.Context, do func(*server) error) error {
	m, err := s.master(ctx)
	if err != nil {
		return err
	}
	return do(m)
}

// moved waits until the Sentinel names another master.
func (s *scene) moved(ctx context.Context, old *server) error {
	return until(ctx, "the Sentinel names another master", func() bool {
		m, err := s.master(ctx)
		return err == nil && m != old
	})
}

// freeze stops a process for so long.
func freeze(pid int, d time.Duration) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(d)
	return p.Signal(syscall.SIGCONT)
}

// spin takes a processor until ctx ends.
func spin(ctx context.Context) {
	for ctx.Err() == nil {
		for range 1 << 16 {
			continue
		}
	}
}

func withoutReplica(args []string) []string {
	for i, a := range args {
		if strings.HasPrefix(a, "--replicaof") {
			return args[:i:i]
		}
	}
	return args
}
