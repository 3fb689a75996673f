package wire

import (
	"encoding/binary"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// A step frame begins with a state and the records of the steps since the last
// state, or with neither. Then come the events of the step. Each begins with the
// distance of its sequence's id from that of the event before: 0 within one
// sequence, more for the next. So ids ascend, and no sequence can come twice.

// All bits of an event's flags have a meaning.
const (
	eventText = 1 << iota
	eventLogprobs
	eventPromptLogprobs
	eventFinish
	eventEmbedding
	eventEnd
	eventPieces
	eventCached
)

// sequenceEvent is an event with the sequence it belongs to.
type sequenceEvent struct {
	Sequence uint64
	Event    Event
	text     int // bytes of the decoder's text that are this event's
}

func appendEvent(b []byte, distance uint64, e *Event) []byte {
	b = binary.AppendUvarint(b, distance)
	at := len(b)
	b = appendInt(appendInt(append(b, 0), e.Choice), e.TokenCount)
	var flags byte
	if e.Text != "" {
		flags |= eventText
		b = appendText(b, e.Text)
	}
	if len(e.Logprobs) > 0 {
		flags |= eventLogprobs
		b = appendLogprobs(b, e.Logprobs)
	}
	if len(e.PromptLogprobs) > 0 {
		flags |= eventPromptLogprobs
		b = appendLogprobs(b, e.PromptLogprobs)
	}
	if e.Finish != FinishNone {
		flags |= eventFinish
		b = appendText(append(b, byte(e.Finish)), e.StopText)
	}
	if len(e.Embedding) > 0 {
		flags |= eventEmbedding
		b = binary.AppendUvarint(b, uint64(len(e.Embedding)))
		for _, x := range e.Embedding {
			b = appendFloat(b, x)
		}
	}
	if e.End != nil {
		flags |= eventEnd
		b = appendEnd(b, e.End)
	}
	if len(e.Pieces) > 0 {
		flags |= eventPieces
		b = appendPieces(b, e.Pieces)
	}
	if e.Cached > 0 {
		flags |= eventCached
		b = appendSize(b, e.Cached)
	}
	b[at] = flags
	return b
}

// pieceBytesLeast is the size of an empty piece, and piecesMax the most pieces of an
// event: a piece takes many times its bytes of the frame.
const (
	pieceBytesLeast = 2
	piecesMax       = 4096
)

func appendPieces(b []byte, all []Piece) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for i := range all {
		p := &all[i]
		b = append(b, byte(p.Kind))
		if p.Kind == PieceCall {
			b = appendText(appendText(b, p.ID), p.Name)
		} else {
			b = appendText(b, p.Text)
		}
	}
	return b
}

func (d *decoder) pieces() []Piece {
	n := d.count(pieceBytesLeast)
	if n == 0 {
		d.fail("a list of pieces is empty")
		return nil
	}
	if n > piecesMax {
		d.fail("an event of %d pieces, over the limit of %d", n, piecesMax)
		return nil
	}
	all := make([]Piece, n)
	for i := range all {
		p := &all[i]
		p.Kind = PieceKind(d.byte())
		switch {
		case p.Kind >= pieceKinds:
			d.fail("unknown kind %d of a piece", uint8(p.Kind))
		case p.Kind == PieceCall:
			p.ID, p.Name = string(d.utf8Text()), string(d.utf8Text())
		default:
			p.Text = string(d.utf8Text())
		}
	}
	return all
}

func appendLogprobs(b []byte, all []TokenLogprob) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for i := range all {
		l := &all[i]
		b = appendInt(appendFloat(appendText(appendInt(b, int(l.ID)), l.Bytes), l.Logprob), l.Rank)
		b = binary.AppendUvarint(b, uint64(len(l.Top)))
		for j := range l.Top {
			t := &l.Top[j]
			b = appendFloat(appendText(appendInt(b, int(t.ID)), t.Bytes), t.Logprob)
		}
	}
	return b
}

func (d *decoder) logprobs() []TokenLogprob {
	n := d.count(8)
	if n == 0 {
		d.fail("a list of log-probabilities is empty")
		return nil
	}
	all := make([]TokenLogprob, n)
	for i := range all {
		l := &all[i]
		l.ID, l.Bytes, l.Logprob, l.Rank = d.int32(), d.bytes(), d.float(), d.int()
		if top := d.count(6); top > 0 {
			l.Top = make([]TopLogprob, top)
			for j := range l.Top {
				l.Top[j] = TopLogprob{ID: d.int32(), Bytes: d.bytes(), Logprob: d.float()}
			}
		}
	}
	return all
}

func appendEnd(b []byte, e *End) []byte {
	b = appendError(b, e.Err)
	for _, n := range usageInts(&e.Usage) {
		b = appendSize(b, *n)
	}
	b = append(b, byte(e.Usage.PinRefused))
	return appendTimings(b, &e.Timings)
}

func (d *decoder) end() *End {
	e := &End{Err: d.error()}
	u := &e.Usage
	for _, n := range usageInts(u) {
		*n = d.size()
	}
	if u.PinRefused = PinRefusal(d.byte()); u.PinRefused >= pinRefusals {
		d.fail("unknown refusal %d of a pin", uint8(u.PinRefused))
	}
	if u.Cached+u.Computed > u.Prompt {
		d.fail("%d prompt tokens were cached and %d computed, of a prompt of %d", u.Cached, u.Computed, u.Prompt)
	}
	d.timings(&e.Timings)
	return e
}

// usageInts are the numbers of a Usage, in the order of the wire.
func usageInts(u *Usage) [6]*int {
	return [...]*int{&u.Prompt, &u.Cached, &u.Computed, &u.Completion, &u.Reasoning, &u.Pinned}
}

// stateInts are the whole numbers of a State, in the order of the wire.
func stateInts(s *State) [19]*int {
	return [...]*int{&s.PagesTotal, &s.PagesUsed, &s.PagesCached, &s.PagesFree, &s.PagesPinned, &s.StatesUsed, &s.StatesCached, &s.StatesFree, &s.StatesPinned, &s.Running, &s.Waiting, &s.Paused, &s.Sequences,
		&s.ShortPrefill, &s.LongPrefill, &s.Room.TokensMax, &s.Room.TokensMin, &s.StepPrefillTokens, &s.StepDecodeTokens}
}

// stateTimes are the durations of a State, in the order of the wire.
func stateTimes(s *State) [3]*time.Duration {
	return [...]*time.Duration{&s.StepDuration, &s.StepPredicted, &s.Room.Budget}
}

// stateRates are the fractions of a State, in the order of the wire.
func stateRates(s *State) [7]*float64 {
	c := &s.Cost
	return [...]*float64{&c.Base, &c.PrefillToken, &c.PrefillContext, &c.DecodeRow, &c.DecodeContext, &s.RatioMedian, &s.RatioHigh}
}

// stateCounts are the totals of a State, in the order of the wire.
func stateCounts(s *State) [30]*uint64 {
	return [...]*uint64{&s.Step, &s.Blocks.Before, &s.Preempted, &s.NonFinite, &s.CallFallbacks, &s.PrefillTokens, &s.CachedTokens, &s.DecodeTokens,
		&s.GrammarsCompiled, &s.GrammarsFound, &s.GrammarsRefused, &s.GrammarsFailed, &s.PinsYielded,
		&s.Disk.Blocks, &s.Disk.Bytes, &s.Disk.Read, &s.Disk.Written, &s.Disk.Dropped, &s.Disk.Corrupted,
		&s.CheckpointsMade, &s.CheckpointsRestored, &s.CheckpointsDropped, &s.UnreachedTokens,
		&s.GPU.Milliwatts, &s.GPU.MemoryUsed, &s.GPU.MemoryAll, &s.GPU.ClockMHz, &s.GPU.MemClockMHz, &s.GPU.Celsius, &s.GPU.Throttled}
}

const blockChangeBytes = 9

// appendState writes s without its model, which has a frame of its own.
func appendState(b []byte, s *State) []byte {
	b = appendError(b, s.Err)
	b = binary.AppendVarint(b, s.At)
	for _, d := range stateTimes(s) {
		b = binary.AppendVarint(b, int64(*d))
	}
	for _, n := range stateInts(s) {
		b = appendInt(b, *n)
	}
	for _, n := range stateCounts(s) {
		b = binary.AppendUvarint(b, *n)
	}
	for _, x := range stateRates(s) {
		b = appendFloat64(b, *x)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Blocks.Changes)))
	for _, c := range s.Blocks.Changes {
		b = appendBool(binary.LittleEndian.AppendUint64(b, c.Hash), c.Evicted)
	}
	return appendText(b, s.Busiest)
}

func (d *decoder) state() *State {
	s := &State{Err: d.error(), At: d.int64()}
	for _, t := range stateTimes(s) {
		*t = duration(d.int64())
	}
	for _, n := range stateInts(s) {
		*n = d.int()
	}
	for _, n := range stateCounts(s) {
		*n = d.uint()
	}
	for _, x := range stateRates(s) {
		*x = d.positive()
	}
	if n := d.count(blockChangeBytes); n > 0 {
		s.Blocks.Changes = make([]hitmap.Change, n)
		for i := range s.Blocks.Changes {
			s.Blocks.Changes[i] = hitmap.Change{Hash: d.uint64(), Evicted: d.bool()}
		}
	}
	s.Busiest = string(d.utf8Text())
	return s
}

// stepFrame is a decoded step frame; its memory is used again for the next one. The
// texts of one frame share one string.
type stepFrame struct {
	State   *State
	Records []StepRecord // of steps; none without a state
	Events  []sequenceEvent
	texts   []byte
}

// decode reads a step frame of at most eventsMax events.
func (s *stepFrame) decode(payload []byte, eventsMax int) *Error {
	clear(s.Events)
	s.State, s.Records, s.Events, s.texts = nil, s.Records[:0], s.Events[:0], s.texts[:0]
	d := &decoder{rest: payload}
	if d.bool() {
		s.State = d.state()
		s.records(d)
	}
	sequence, ended := uint64(0), true
	for len(d.rest) > 0 && d.err == nil {
		if len(s.Events) == eventsMax {
			d.fail("a step of more events than there is room for, which is %d", eventsMax)
			break
		}
		distance := d.uint()
		switch {
		case distance == 0 && ended:
			d.fail("an event follows the end of sequence %d", sequence)
		case sequence+distance < sequence:
			d.fail("sequence ids overflow")
		}
		sequence += distance
		e := s.event(d)
		e.Sequence, ended = sequence, e.Event.End != nil
		s.Events = append(s.Events, e)
	}
	if err := d.finish(); err != nil {
		return err
	}
	texts := string(s.texts)
	for i := range s.Events {
		e := &s.Events[i]
		e.Event.Text, texts = texts[:e.text], texts[e.text:]
		e.text = 0
	}
	return nil
}

// records reads the records of a frame, into the memory of earlier ones.
func (s *stepFrame) records(d *decoder) {
	n := d.count(recordBytesLeast)
	if n > stepRecordsMax {
		d.fail("a frame of %d steps' records, over the limit of %d", n, stepRecordsMax)
		return
	}
	for range n {
		if len(s.Records) == cap(s.Records) {
			s.Records = append(s.Records, StepRecord{})
		} else {
			s.Records = s.Records[:len(s.Records)+1]
		}
		d.record(&s.Records[len(s.Records)-1])
	}
}

func (s *stepFrame) event(d *decoder) (q sequenceEvent) {
	flags, e := d.byte(), &q.Event
	e.Choice, e.TokenCount = d.int(), d.int()
	if flags&eventText != 0 {
		text := d.utf8Text()
		q.text = len(text)
		s.texts = append(s.texts, text...)
	}
	if flags&eventLogprobs != 0 {
		e.Logprobs = d.logprobs()
	}
	if flags&eventPromptLogprobs != 0 {
		e.PromptLogprobs = d.logprobs()
	}
	if flags&eventFinish != 0 {
		e.Finish = Finish(d.byte())
		if e.Finish == FinishNone || e.Finish >= finishes {
			d.fail("unknown finish %d", uint8(e.Finish))
		}
		e.StopText = d.text()
	}
	if flags&eventEmbedding != 0 {
		e.Embedding = make([]float32, d.count(4))
		for i := range e.Embedding {
			e.Embedding[i] = d.float()
		}
	}
	if flags&eventEnd != 0 {
		e.End = d.end()
	}
	if flags&eventPieces != 0 {
		e.Pieces = d.pieces()
	}
	if flags&eventCached != 0 {
		e.Cached = d.size()
	}
	return q
}
