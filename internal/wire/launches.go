package wire

import (
	"context"
	"encoding/binary"
	"time"
)

// traceReply answers a launch trace: launches or an error.
type traceReply struct {
	Trace  uint64 // the request's id
	Result LaunchTrace
	Err    *Error
}

// launchBytesLeast is the size of the shortest launch.
const launchBytesLeast = 5

// appendTraceReply writes each launch by its distance from the one before.
func appendTraceReply(b []byte, r *traceReply) []byte {
	start := len(b)
	b = appendError(binary.AppendUvarint(beginFrame(b, frameTraceReply), r.Trace), r.Err)
	if r.Err != nil {
		return endFrame(b, start)
	}
	b = appendSize(appendSize(b, r.Result.Steps), r.Result.Missing)
	b = appendSize(b, len(r.Result.Launches))
	var last Launch
	for i := range r.Result.Launches {
		l := &r.Result.Launches[i]
		b = binary.AppendVarint(b, int64(l.Step-last.Step))
		b = append(appendInt(b, l.Layer), byte(l.Class))
		b = binary.AppendVarint(b, l.Begin-last.End)
		b = appendDuration(b, duration(l.End-l.Begin))
		last = *l
	}
	return endFrame(b, start)
}

func (d *decoder) traceReply() (r traceReply) {
	r.Trace, r.Err = d.uint(), d.error()
	if r.Err != nil {
		return r
	}
	r.Result.Steps, r.Result.Missing = d.size(), d.size()
	n := d.count(launchBytesLeast)
	if n > LaunchTraceMax {
		d.fail("a trace of %d launches, over the limit of %d", n, LaunchTraceMax)
		return r
	}
	r.Result.Launches = make([]Launch, n)
	var last Launch
	for i := range r.Result.Launches {
		l := Launch{Step: last.Step + uint64(d.int64()), Layer: d.int(), Class: KernelClass(d.byte())}
		l.Begin = last.End + d.int64()
		l.End = l.Begin + int64(d.duration())
		if l.Class >= KernelClassCount || l.End < l.Begin {
			d.fail("a launch of class %d from %d to %d", l.Class, l.Begin, l.End)
		}
		r.Result.Launches[i], last = l, l
	}
	return r
}

// CheckLaunchTrace refuses a launch trace that asks for too much or for nothing.
func CheckLaunchTrace(steps int, limit time.Duration) *Error {
	switch {
	case steps < 1 || steps > LaunchTraceStepsMax:
		return InvalidParam("steps", "a launch trace of %d steps; it must be from 1 to %d", steps, LaunchTraceStepsMax)
	case limit <= 0:
		return InvalidParam("limit", "a launch trace of at most %v; the limit must be more than 0", limit)
	}
	return nil
}

// traceLaunches starts a launch trace, which is answered when it is over.
func (c *connection) traceLaunches(id uint64, steps int, limit time.Duration) *Error {
	refused := func(err *Error) []byte { return appendTraceReply(nil, &traceReply{Trace: id, Err: err}) }
	return c.start(id, refused, func(ctx context.Context) []byte {
		engine, ok := c.engine.(LaunchTracer)
		if !ok {
			return refused(Errorf(Invalid, "this engine cannot trace launches"))
		}
		result, err := engine.TraceLaunches(ctx, steps, limit)
		if err != nil {
			return refused(AsError(err))
		}
		frame := appendTraceReply(nil, &traceReply{Trace: id, Result: *result})
		if size := len(frame) - frameHead; size > c.cfg.FrameBytesMax {
			return refused(Errorf(TooLarge, "the launch trace takes %d bytes to hand back, over the limit of %d: trace fewer steps or raise frame_bytes_max", size, c.cfg.FrameBytesMax))
		}
		return frame
	})
}
