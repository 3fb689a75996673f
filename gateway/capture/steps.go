package capture

import (
	"cmp"
	"slices"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// Bounds of what is shown one by one of a request.
const (
	stepsMax      = 96
	neighboursMax = 32
)

// step is a step of the engine during a request's life, as it is kept in memory
// and on disk. Instants and durations are nanoseconds.
type step struct {
	Run           uint64       `json:"run"` // of the engine, since this gateway began
	Number        uint64       `json:"number"`
	Began         int64        `json:"began"` // of CLOCK_MONOTONIC, as Ended
	Ended         int64        `json:"ended"`
	Gap           int64        `json:"gap"`    // since the step before
	Idle          int64        `json:"idle"`   // the part of Gap with nothing to do
	Member        bool         `json:"member"` // the request was computed in it
	Decode        bool         `json:"decode"` // a next token of the request was computed
	LeftOut       string       `json:"left_out,omitempty"`
	Own           int64        `json:"own"` // the request's part of the step
	OwnTokens     int          `json:"own_tokens"`
	DecodeRows    int          `json:"decode_rows"`
	PrefillTokens int          `json:"prefill_tokens"`
	OthersPrefill int          `json:"others_prefill"` // tokens
	Members       int          `json:"members"`
	PagesUsed     int          `json:"pages_used"`
	Predicted     int64        `json:"predicted,omitempty"` // what it takes where nothing is lost, 0 for unknown
	Lost          int64        `json:"lost,omitempty"`      // the part in which the engine did not run
	LostTo        string       `json:"lost_to,omitempty"`   // what most of Lost went to
	Largest       string       `json:"largest,omitempty"`   // the other request that took most of the step
	Kernels       []stepKernel `json:"kernels,omitempty"`   // the classes that took a fiftieth of the step or more
}

// stepKernel is what one kernel class took of a step.
type stepKernel struct {
	Class string `json:"class"`
	Total int64  `json:"total"`
	Max   int64  `json:"max"` // of one launch
	Count int    `json:"count"`
}

// phase is the part of the request's answer that the step worked on.
func (s *step) phase() string {
	if s.Decode {
		return phaseDecode.String()
	}
	return phasePrefill.String()
}

// witness goes through the steps of a request's life and keeps what concerns
// the request. Each step is a stretch of that life: the gap before it, and itself.
type witness struct {
	begin, end    int64  // of the life in the engine, as far as it is known
	serial, count uint64 // of its generations
	firstToken    int64  // as the gateway saw it
	lost          []wire.LostTime

	run        uint64 // of the engine; 0 before the first step
	mark       int64  // the time up to here is divided
	times      wire.Timings
	steps      []seenStep
	kernels    [wire.KernelClassCount]kernelSum
	neighbours map[uint64]*neighbour
}

// seenStep is a step, and what is needed to thin the list and to name others.
type seenStep struct {
	step
	largest uint64 // serial
	waited  int64  // the request's wait, without its own prefill
	kernels [wire.KernelClassCount]wire.KernelTime
}

type kernelSum struct {
	count            uint64
	wall, share, max int64
}

// neighbour is the part of another generation in the steps of a request.
type neighbour struct {
	steps, prefill, decode int
	own                    int64
	step                   uint64 // the last one that counts in steps
}

// witnessed looks at the steps of r up to the instant end.
func (g *stepRing) witnessed(r *telemetry.Record, end int64) *witness {
	w := &witness{
		begin: r.Dispatched, end: end, serial: r.Serial, count: uint64(max(1, r.Prompts)), firstToken: r.FirstToken,
		mark: r.Dispatched, neighbours: map[uint64]*neighbour{},
	}
	if r.Engine.Finished != 0 {
		w.end = min(end, r.Engine.Finished)
	}
	if r.Dispatched == 0 || r.Serial == 0 {
		return w
	}
	w.lost = g.lostIn(w.begin, w.end)
	g.between(w.begin, w.end, w.see)
	return w
}

// see takes the next step.
func (w *witness) see(s *stepEntry, parts []stepPart) {
	if w.run != 0 && s.run != w.run {
		return // of another engine process, which does not have the request
	}
	w.run = s.run
	v := seenStep{kernels: s.kernels, step: step{
		Run: s.run, Number: s.number, Began: s.began, Ended: s.ended, Gap: s.gap + s.givenUp + s.idle, Idle: s.idle,
		DecodeRows: int(s.decodeRows), PrefillTokens: int(s.prefillTokens), OthersPrefill: int(s.prefillTokens), Members: int(s.members), PagesUsed: int(s.pages), Predicted: s.predicted,
	}}
	v.lose(during(w.lost, s.began, s.ended))
	var ownPrefill, othersPrefill, largest int64
	members := parts[:min(len(parts), int(s.members))]
	for i := range members {
		m := &members[i]
		switch mine := w.mine(m.serial); {
		case mine && !m.decode:
			ownPrefill += m.own
			v.OthersPrefill -= int(m.tokens)
			fallthrough
		case mine:
			v.Own += m.own
			v.Member, v.Decode = true, v.Decode || m.decode
			v.OwnTokens += int(m.tokens)
		default:
			if !m.decode {
				othersPrefill += m.own
			}
			if m.own > largest {
				largest, v.largest = m.own, m.serial
			}
		}
	}
	v.waited = s.ended - s.began - ownPrefill
	left := wire.PartCount
	for _, o := range parts[len(members):] {
		if w.mine(o.serial) && !v.Member {
			left = o.why
			v.LeftOut = o.why.String()
		}
	}
	if v.Member || left != wire.PartCount {
		w.meet(s.number, members)
	}
	w.spend(&v.step, othersPrefill, left)
	w.sumKernels(&v)
	w.steps = append(w.steps, v)
}

// lose notes what was lost in the step. If it was lost in one piece, it is taken out
// of the kernel class whose longest launch has it: that class did not compute meanwhile.
func (v *seenStep) lose(lost losses) {
	sum := lost.sum()
	if sum == 0 {
		return
	}
	worst, longest := wire.LostFrozen, wire.KernelClass(0)
	for c, d := range lost {
		if d > lost[worst] {
			worst = wire.LostCause(c)
		}
	}
	v.Lost, v.LostTo = int64(sum), worst.String()
	for class := range v.kernels {
		if v.kernels[class].Max > v.kernels[longest].Max {
			longest = wire.KernelClass(class)
		}
	}
	if k := &v.kernels[longest]; k.Max >= sum/2 {
		cut := min(sum, k.Max)
		k.Total, k.Max = max(0, k.Total-cut), k.Max-cut
	}
}

func (w *witness) mine(serial uint64) bool { return serial-w.serial < w.count }

// meet counts the others in a step.
func (w *witness) meet(step uint64, members []stepPart) {
	for i := range members {
		m := &members[i]
		if w.mine(m.serial) {
			continue
		}
		n := w.neighbours[m.serial]
		if n == nil {
			n = &neighbour{}
			w.neighbours[m.serial] = n
		}
		if n.step != step {
			n.step = step
			n.steps++
		}
		n.own += m.own
		if m.decode {
			n.decode += int(m.tokens)
		} else {
			n.prefill += int(m.tokens)
		}
	}
}

// spend divides the time up to the step's end among the parts, as the engine
// does for generations that have ended.
func (w *witness) spend(s *step, othersPrefill int64, left wire.Part) {
	t := &w.times
	if s.Member && t.Scheduled == 0 {
		t.Received, t.Scheduled = w.begin, max(w.begin, s.Began)
	}
	if s.Decode && t.FirstToken == 0 {
		t.FirstToken = cmp.Or(min(w.firstToken, s.Began), s.Began)
	}
	p := &t.BeforeFirst
	if t.FirstToken != 0 {
		p = &t.AfterFirst
	}
	end := min(s.Ended, w.end)
	switch {
	case end <= w.mark:
		return
	case s.Member:
		if began := max(w.mark, min(s.Began, end)); began > w.mark {
			p[wire.PartGap] += time.Duration(began - w.mark)
			w.mark = began
		}
		part := end - w.mark // the request may see a part of the step alone: then all shares shrink alike
		whole := max(1, s.Ended-s.Began)
		mine := part * s.Own / whole
		others := min(part-mine, part*othersPrefill/whole)
		p[wire.PartOwn] += time.Duration(mine)
		p[wire.PartOthersPrefill] += time.Duration(others)
		p[wire.PartOthersDecode] += time.Duration(part - mine - others)
	case left != wire.PartCount:
		p[left] += time.Duration(end - w.mark)
	default:
		return // the reason is not known, so this time stays unexplained
	}
	w.mark = end
}

func (w *witness) sumKernels(s *seenStep) {
	if !s.Member {
		return
	}
	part := float64(s.Own) / float64(max(1, s.Ended-s.Began))
	for class := range s.kernels {
		k, sum := &s.kernels[class], &w.kernels[class]
		sum.count += uint64(k.Count)
		sum.wall += int64(k.Total)
		sum.share += int64(float64(k.Total) * part)
		sum.max = max(sum.max, int64(k.Max))
	}
}

// thin returns at most a given number of the steps, in order: half of them have the
// longest waits, the others lie at even distances. more counts the others.
func thin[S any](steps []S, most int, waited func(*S) int64) (kept []S, more int) {
	if len(steps) <= most {
		return steps, 0
	}
	order := make([]int, len(steps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(waited(&steps[b]), waited(&steps[a])) })
	chosen := make([]bool, len(steps))
	for _, i := range order[:most/2] {
		chosen[i] = true
	}
	rest := order[most/2:]
	slices.Sort(rest)
	for i := range most - most/2 {
		chosen[rest[i*len(rest)/(most-most/2)]] = true
	}
	for i := range steps {
		if chosen[i] {
			kept = append(kept, steps[i])
		}
	}
	return kept, len(steps) - len(kept)
}

// kernelViews are the classes with time, in the order of their list.
func (w *witness) kernelViews() []KernelView {
	list := []KernelView{}
	for class, k := range w.kernels {
		if k.count > 0 {
			list = append(list, KernelView{wire.KernelClass(class).String(), k.count, ms(k.wall), ms(k.share), ms(k.max)})
		}
	}
	return list
}

// neighbourViews are the others, the costliest first.
func (w *witness) neighbourViews(names *requestRing) (list []NeighbourView, more int) {
	byID := map[string]*NeighbourView{}
	list = []NeighbourView{}
	own := map[string]int64{}
	for serial, n := range w.neighbours {
		q := names.named(serial)
		v := byID[q.id]
		if v == nil {
			v = &NeighbourView{ID: q.id, ClientID: q.clientID, Tenant: q.tenant, Class: q.class}
			byID[q.id] = v
		}
		v.Steps = max(v.Steps, n.steps) // prompts of one request share their steps
		v.PrefillTokens += n.prefill
		v.DecodeTokens += n.decode
		own[q.id] += n.own
	}
	for id, v := range byID {
		v.MS = ms(own[id])
		list = append(list, *v)
	}
	slices.SortFunc(list, func(a, b NeighbourView) int { return cmp.Or(cmp.Compare(b.MS, a.MS), cmp.Compare(a.ID, b.ID)) })
	more = max(0, len(list)-neighboursMax)
	return list[:len(list)-more], more
}

// shown are the steps to keep, with the names of others in them.
func (w *witness) shown(names *requestRing) (list []step, more int) {
	kept, more := thin(w.steps, stepsMax, func(s *seenStep) int64 { return s.waited })
	list = make([]step, len(kept))
	for i := range kept {
		s := &kept[i]
		if s.largest != 0 {
			s.Largest = names.named(s.largest).id
		}
		for class, k := range s.kernels {
			if k.Count > 0 && int64(k.Total)*50 >= s.Ended-s.Began {
				s.Kernels = append(s.Kernels, stepKernel{wire.KernelClass(class).String(), int64(k.Total), int64(k.Max), int(k.Count)})
			}
		}
		list[i] = s.step
	}
	return list, more
}
