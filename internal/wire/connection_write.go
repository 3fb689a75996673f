package wire

import (
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// write sends a frame whenever there is something to send, and at least one every
// HeartbeatInterval. It returns true when the connection's context has ended and
// all that waited by then is sent, and false when a write failed.
func (c *connection) write() bool {
	heartbeat := time.NewTicker(c.cfg.HeartbeatInterval)
	defer heartbeat.Stop()
	var b []byte
	for due := true; ; {
		last := c.ctx.Err() != nil
		for more := true; more; {
			b, more = c.compose(b[:0], due)
			due = false
			if len(b) > 0 && !c.send(b) {
				return false
			}
		}
		if last {
			return true
		}
		if cap(b) > frameKeep {
			b = nil
		}
		select {
		case <-c.ctx.Done():
		case <-c.notify:
		case <-heartbeat.C:
			due = true
		}
	}
}

func (c *connection) send(b []byte) bool {
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout)); err != nil {
		return false
	}
	_, err := c.conn.Write(b)
	return err == nil
}

// compose appends what waits: whole frames, then a step frame with the newest
// state and the events that the gateway has room for. It stops at a part of the
// largest frame, and more says that something is left.
func (c *connection) compose(b []byte, due bool) (_ []byte, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b = append(b, c.out...)
	if c.out = c.out[:0]; cap(c.out) > frameKeep {
		c.out = nil
	}
	state := c.engine.State()
	if state.Model != c.model {
		c.model = state.Model
		b = appendJSONFrame(b, frameModel, &c.model)
	}
	start := len(b)
	b = beginFrame(b, frameStep)
	fresh, behind := due || state != c.sent || c.steps < state.Steps.Added(), false
	b = appendBool(b, fresh)
	if fresh {
		c.sent, c.news = state, *state
		c.news.Blocks = c.newBlocks(&state.Blocks)
		b, behind = c.appendRecords(appendState(b, &c.news))
	}
	bare := len(b)
	b, more = c.appendSteps(b, start)
	if len(b) == bare && !fresh {
		return b[:start], false
	}
	return endFrame(b, start), more || behind
}

// newBlocks is the part of the journal that was not sent yet. Where a frame has
// no room for all of it, the oldest changes are left out, and the client notices
// by Before.
func (c *connection) newBlocks(journal *hitmap.Journal) hitmap.Journal {
	changes := c.blocks.Read(journal).Changes
	if over := len(changes) - c.cfg.FrameBytesMax/8/blockChangeBytes; over > 0 {
		changes = changes[over:]
	}
	return hitmap.Journal{Before: journal.End() - uint64(len(changes)), Changes: changes}
}

// appendRecords appends the records of the steps since the last frame, as many as
// one frame may hold. behind says that some are left.
func (c *connection) appendRecords(b []byte) (_ []byte, behind bool) {
	limit := len(b) + min(frameKeep, c.cfg.FrameBytesMax/8)
	count, at := 0, len(b)
	b = append(b, 0, 0) // room for the count
	c.steps = c.news.Steps.After(c.steps, func(r *StepRecord) bool {
		b = appendRecord(b, r)
		count++
		behind = count == stepRecordsMax || len(b) > limit
		return !behind
	})
	b[at], b[at+1] = byte(count)|0x80, byte(count>>7) // a varint of two bytes
	return b, behind
}

// appendSteps appends the events of all sequences to the step frame that
// begins at start, and forgets the sequences that end.
func (c *connection) appendSteps(b []byte, start int) (_ []byte, more bool) {
	soft := min(frameKeep, c.cfg.FrameBytesMax/4)
	previous, kept := uint64(0), c.sequences[:0]
	for _, q := range c.sequences {
		ended, full := false, false
		for !ended {
			if full = len(b)-start > soft; full {
				break
			}
			if c.events = q.take(c.events[:0]); len(c.events) == 0 {
				break
			}
			e, at := &c.events[0], len(b)
			b = appendEvent(b, q.id-previous, e)
			if size := len(b) - at; size > c.cfg.FrameBytesMax/2 && e.End == nil {
				q.err = Errorf(TooLarge, "one event takes %d bytes: ask for fewer log-probabilities", size)
				q.canceled = true
				q.stream.Cancel()
				b, *e = b[:at], Event{}
				continue
			}
			previous, ended = q.id, e.End != nil
			*e = Event{}
		}
		more = more || full
		if !ended {
			kept = append(kept, q)
		}
	}
	clear(c.sequences[len(kept):])
	c.sequences = kept
	return b, more
}

// take appends the one event that q may send now, if there is one. A cancelled
// sequence has nothing but its end.
func (q *served) take(dst []Event) []Event {
	if q.canceled {
		at := len(dst)
		if dst = q.stream.takeN(dst, 1); q.err != nil && len(dst) > at {
			end := *dst[at].End
			end.Err, dst[at].End = q.err, &end
		}
		return dst
	}
	dst = q.stream.takeN(dst, min(1, q.credit))
	q.credit -= len(dst)
	return dst
}
