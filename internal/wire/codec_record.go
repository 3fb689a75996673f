package wire

import (
	"encoding/binary"
	"math"
	"time"
)

// This file writes and reads step records and Timings. A serial is written as
// its distance from the serial before, an instant of a step as a duration.

// stepRecordsMax is the most records of one step frame.
const stepRecordsMax = 256

// recordBytesLeast is the size of an empty record.
const recordBytesLeast = 19

func appendDuration(b []byte, d time.Duration) []byte {
	return binary.AppendUvarint(b, uint64(max(0, d)))
}

// duration reads a length of time that is not negative.
func (d *decoder) duration() time.Duration {
	ns := d.uint()
	if ns > math.MaxInt64 {
		d.fail("a duration of %d ns is too long", ns)
		return 0
	}
	return time.Duration(ns)
}

// size reads a whole number that is not negative.
func (d *decoder) size() int {
	n := d.uint()
	if n > math.MaxInt32 {
		d.fail("a count of %d is too large", n)
		return 0
	}
	return int(n)
}

func appendSize(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(max(0, n))) }

// entries reads the length of a list of a StepRecord whose entries take at
// least size bytes each.
func (d *decoder) entries(size int) int {
	n := d.count(size)
	if n > StepListMax {
		d.fail("a list of %d entries in a step's record, over the limit of %d", n, StepListMax)
		return 0
	}
	return n
}

func appendRecord(b []byte, r *StepRecord) []byte {
	b = binary.AppendVarint(binary.AppendUvarint(b, r.Step), r.Began)
	b = appendDuration(appendDuration(appendDuration(appendDuration(b, duration(r.Ended-r.Began)), r.Gap), r.GivenUp), r.Idle)
	b = appendSize(appendSize(appendSize(b, r.DecodeRows), r.PrefillTokens), r.PagesUsed)
	b = appendSize(appendSize(appendSize(b, r.MembersMore), r.LeftOutMore), r.PreemptedMore)
	serial := uint64(0)
	next := func(s uint64) {
		b = binary.AppendVarint(b, int64(s-serial))
		serial = s
	}
	b = appendSize(b, len(r.Members))
	for i := range r.Members {
		m := &r.Members[i]
		next(m.Serial)
		b = appendDuration(appendSize(appendBool(append(b, m.Level), m.Decode), m.Tokens), m.Own)
	}
	b = appendSize(b, len(r.LeftOut))
	for _, o := range r.LeftOut {
		next(o.Serial)
		b = append(b, byte(o.Why))
	}
	b = appendSize(b, len(r.Preempted))
	for _, s := range r.Preempted {
		next(s)
	}
	b = appendSize(appendDuration(appendDuration(b, r.Predicted), r.CPU), len(r.Lost))
	for i := range r.Lost {
		b = appendLost(b, &r.Lost[i])
	}
	return appendKernels(b, &r.Kernels)
}

func appendLost(b []byte, l *LostTime) []byte {
	b = appendDuration(binary.AppendVarint(b, l.Begin), duration(l.End-l.Begin))
	for _, d := range l.By {
		b = appendDuration(b, d)
	}
	return b
}

func (d *decoder) lost() (l LostTime) {
	l.Begin = d.int64()
	whole := d.duration()
	if l.End = l.Begin + int64(whole); l.End < l.Begin {
		d.fail("a lost stretch that begins at %d and takes %d ns ends too late", l.Begin, whole)
	}
	left := whole
	for i := range l.By {
		if l.By[i] = d.duration(); l.By[i] > left {
			d.fail("more than the %d ns of a stretch were lost in it", whole)
			return LostTime{}
		}
		left -= l.By[i]
	}
	return l
}

// record reads into r, and uses the memory of r's lists again.
func (d *decoder) record(r *StepRecord) {
	members, leftOut, preempted, lost := r.Members[:0], r.LeftOut[:0], r.Preempted[:0], r.Lost[:0]
	*r = StepRecord{Step: d.uint(), Began: d.int64()}
	took := d.duration()
	if r.Ended = r.Began + int64(took); r.Ended < r.Began {
		d.fail("a step that begins at %d and takes %d ns ends too late", r.Began, took)
	}
	r.Gap, r.GivenUp, r.Idle = d.duration(), d.duration(), d.duration()
	for _, n := range [...]*int{&r.DecodeRows, &r.PrefillTokens, &r.PagesUsed, &r.MembersMore, &r.LeftOutMore, &r.PreemptedMore} {
		*n = d.size()
	}
	serial := uint64(0)
	next := func() uint64 {
		serial += uint64(d.int64())
		return serial
	}
	for range d.entries(5) {
		m := StepMember{Serial: next(), Level: d.byte(), Decode: d.bool(), Tokens: d.size(), Own: d.duration()}
		members = append(members, m)
	}
	for range d.entries(2) {
		o := StepLeftOut{Serial: next(), Why: Part(d.byte())}
		if o.Why < PartPages || o.Why >= PartCount {
			d.fail("unknown reason %d for being left out of a step", uint8(o.Why))
		}
		leftOut = append(leftOut, o)
	}
	for range d.entries(1) {
		preempted = append(preempted, next())
	}
	r.Predicted, r.CPU = d.duration(), d.duration()
	n := d.count(2 + int(LostCauseCount))
	if n > LostTimesMax {
		d.fail("a list of %d lost stretches in a step's record, over the limit of %d", n, LostTimesMax)
		n = 0
	}
	for range n {
		lost = append(lost, d.lost())
	}
	r.Members, r.LeftOut, r.Preempted, r.Lost = members, leftOut, preempted, lost
	d.kernels(&r.Kernels)
}

// appendKernels writes which classes were launched, as bits, and then their times.
func appendKernels(b []byte, all *[KernelClassCount]KernelTime) []byte {
	used := uint64(0)
	for i := range all {
		if all[i] != (KernelTime{}) {
			used |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, used)
	for i := range all {
		if k := &all[i]; used&(1<<i) != 0 {
			b = appendDuration(appendDuration(binary.AppendUvarint(b, uint64(k.Count)), k.Total), k.Max)
		}
	}
	return b
}

func (d *decoder) kernels(all *[KernelClassCount]KernelTime) {
	used := d.uint()
	if used >= 1<<KernelClassCount {
		d.fail("unknown kernel classes %#x", used)
	}
	for i := range all {
		if used&(1<<i) != 0 {
			all[i] = KernelTime{Count: uint32(d.size()), Total: d.duration(), Max: d.duration()}
		}
	}
}

// timingsInstants are the instants of Timings, in the order of the wire.
func timingsInstants(t *Timings) [5]*int64 {
	return [...]*int64{&t.Arrived, &t.Received, &t.Scheduled, &t.FirstToken, &t.Finished}
}

// timingsInts are the whole numbers of Timings, in the order of the wire.
func timingsInts(t *Timings) [6]*int {
	return [...]*int{&t.Steps, &t.Preempted, &t.PrefillSteps, &t.DecodeSteps, &t.PrefillChunks, &t.PrefillTokens}
}

func appendTimings(b []byte, t *Timings) []byte {
	for _, at := range timingsInstants(t) {
		b = binary.AppendVarint(b, *at)
	}
	for _, n := range timingsInts(t) {
		b = appendInt(b, *n)
	}
	for _, parts := range [...]*Parts{&t.BeforeFirst, &t.AfterFirst} {
		for _, d := range parts {
			b = appendDuration(b, d)
		}
	}
	for i := range t.Slow {
		s := &t.Slow[i]
		if b = binary.AppendUvarint(b, s.Step); s.Step == 0 {
			break
		}
		b = binary.AppendUvarint(appendSize(appendDuration(b, s.Duration), s.OthersPrefill), s.Largest)
	}
	return b
}

func (d *decoder) timings(t *Timings) {
	for _, at := range timingsInstants(t) {
		*at = d.int64()
	}
	for _, n := range timingsInts(t) {
		*n = d.int()
	}
	for _, parts := range [...]*Parts{&t.BeforeFirst, &t.AfterFirst} {
		for i := range parts {
			parts[i] = d.duration()
		}
	}
	for i := range t.Slow {
		step := d.uint()
		if step == 0 {
			break
		}
		t.Slow[i] = SlowStep{Step: step, Duration: d.duration(), OthersPrefill: d.size(), Largest: d.uint()}
	}
}
