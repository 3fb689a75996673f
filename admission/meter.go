package admission

import (
	"math"
	"time"
)

// meter is a sum that fades: what was added t ago counts exp(-t/memory). So
// sum/memory is a rate. The zero value is empty.
type meter struct {
	sum float64
	at  time.Duration
}

// memory is the time constant of meters that do not say another.
const memory = 30 * time.Second

func (m *meter) add(x float64, now time.Duration) { m.addOver(x, now, memory) }

func (m *meter) addOver(x float64, now, memory time.Duration) {
	m.sum, m.at = m.valueOver(now, memory)+x, max(m.at, now)
}

func (m *meter) value(now time.Duration) float64 { return m.valueOver(now, memory) }

func (m *meter) valueOver(now, memory time.Duration) float64 {
	if now <= m.at || m.sum == 0 {
		return m.sum
	}
	return m.sum * math.Exp(-float64(now-m.at)/float64(memory))
}

// share reads a meter of engine time as a share of all time.
func (m *meter) share(now time.Duration) float64 { return min(1, m.value(now)/float64(memory)) }
