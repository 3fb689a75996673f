package engine

import (
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/internal/nvml"
	"github.com/forebay-io/forebay/internal/wire"
)

// monitor reads what the GPU says of itself, on a goroutine of its own: a reading may take some
// milliseconds, which no step should wait for. A nil monitor does nothing.
type monitor struct {
	last       atomic.Pointer[nvml.Reading]
	stop, done chan struct{}
}

// watchGPU begins to read the GPU of p, if it is there and NVML is.
func (p *loaded) watchGPU(cfg *Config) {
	if p.gpu == nil {
		return
	}
	read, end, err := p.gpu.Monitor(cfg.Device.NVML)
	if err != nil {
		cfg.Log.Info("power, clocks and memory of the GPU are not in the metrics", "why", err)
		return
	}
	m := &monitor{stop: make(chan struct{}), done: make(chan struct{})}
	p.monitor = m
	p.closers = append(p.closers, m.close)
	go func() {
		defer close(m.done)
		defer end()
		ticker := time.NewTicker(cfg.Device.ReadingEvery)
		defer ticker.Stop()
		for {
			r := read()
			m.last.Store(&r)
			select {
			case <-ticker.C:
			case <-m.stop:
				return
			}
		}
	}()
}

func (m *monitor) close() error {
	close(m.stop)
	<-m.done
	return nil
}

// count writes the last reading into a State.
func (m *monitor) count(to *wire.State) {
	if m == nil {
		return
	}
	if r := m.last.Load(); r != nil {
		to.GPU = wire.GPUState(*r)
	}
}
