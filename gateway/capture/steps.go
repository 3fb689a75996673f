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

// witness goes through the steps of a request's life and keeps what concerns
// it. Each step is a stretch of that life: the gap before it, and itself.
type witness struct {
	begin, end    int64 // of the part of the life in the engine, as far as known
	arrived       int64
	serial, count uint64 // of its generations
	firstToken    int64  // as the gateway saw it

	run        uint64 // of the engine; 0 before the first step
	mark       int64  // up to where the time is given to a part
	times      engineTimes
	steps      []seenStep
	kernels    [wire.KernelClassCount]kernelSum
	neighbours map[uint64]*neighbour
}

// seenStep is a step with what thinning needs to know.
type seenStep struct {
	view    StepView
	took    int64
	largest uint64 // serial
	waited  int64  // what the request waited, apart from its own prefill
	kernels [wire.KernelClassCount]wire.KernelTime
}

type kernelSum struct {
	count            uint64
	wall, share, max int64
}

// neighbour is the part of others in the steps of a request.
type neighbour struct {
	steps, prefill, decode int
	own                    int64
	step                   uint64 // the last one it was counted in
}

// witnessed looks at the steps of r up to the instant end.
func (g *stepRing) witnessed(r *telemetry.Record, end int64) *witness {
	w := &witness{
		begin: r.Dispatched, end: end, arrived: r.Arrived, serial: r.Serial, count: uint64(max(1, r.Prompts)), firstToken: r.FirstToken,
		mark: r.Dispatched, neighbours: map[uint64]*neighbour{},
	}
	if r.Engine.Finished != 0 {
		w.end = min(end, r.Engine.Finished)
	}
	if r.Dispatched == 0 || r.Serial == 0 {
		return w
	}
	g.between(w.begin, w.end, w.see)
	return w
}

// see takes the next step.
func (w *witness) see(s *stepEntry, parts []stepPart) {
	if w.run != 0 && s.run != w.run {
		return // of another engine process, which knows nothing of it
	}
	w.run = s.run
	v := seenStep{took: s.ended - s.began, kernels: s.kernels, view: StepView{
		Step: s.number, Run: s.run, BeginMS: ms(s.began - w.arrived), MS: ms(s.ended - s.began), GapMS: ms(s.gap + s.givenUp + s.idle), IdleMS: ms(s.idle),
		DecodeRows: int(s.decodeRows), PrefillTokens: int(s.prefillTokens), OthersPrefill: int(s.prefillTokens), Members: int(s.members), PagesUsed: int(s.pages),
	}}
	var own, ownPrefill, othersPrefill, largest int64
	members := parts[:min(len(parts), int(s.members))]
	for i := range members {
		m := &members[i]
		switch mine := w.mine(m.serial); {
		case mine && !m.decode:
			ownPrefill += m.own
			v.view.OthersPrefill -= int(m.tokens)
			fallthrough
		case mine:
			own += m.own
			v.view.Member, v.view.Decode = true, v.view.Decode || m.decode
			v.view.OwnTokens += int(m.tokens)
		default:
			if !m.decode {
				othersPrefill += m.own
			}
			if m.own > largest {
				largest, v.largest = m.own, m.serial
			}
		}
	}
	v.view.OwnMS = ms(own)
	v.waited = s.ended - s.began - ownPrefill
	left := wire.PartCount
	for _, o := range parts[len(members):] {
		if w.mine(o.serial) && !v.view.Member {
			left = o.why
			v.view.LeftOut = o.why.String()
		}
	}
	if v.view.Member || left != wire.PartCount {
		w.meet(s.number, members)
	}
	w.spend(s, &v, own, othersPrefill, left)
	w.sumKernels(s, v.view.Member, own)
	w.steps = append(w.steps, v)
}

func (w *witness) mine(serial uint64) bool { return serial-w.serial < w.count }

// meet counts the others of a step.
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

// spend gives the time up to the step's end to parts, as the engine does for
// those whose end it tells.
func (w *witness) spend(s *stepEntry, v *seenStep, own, othersPrefill int64, left wire.Part) {
	t := &w.times
	if v.view.Member && t.scheduled == 0 {
		t.received, t.scheduled = w.begin, max(w.begin, s.began)
	}
	if v.view.Decode && t.first == 0 {
		t.first = cmp.Or(min(w.firstToken, s.began), s.began)
	}
	p := &t.before
	if t.first != 0 {
		p = &t.after
	}
	end := min(s.ended, w.end)
	switch {
	case end <= w.mark:
		return
	case v.view.Member:
		if began := max(w.mark, min(s.began, end)); began > w.mark {
			p[wire.PartGap] += time.Duration(began - w.mark)
			w.mark = began
		}
		part := end - w.mark // of a step that it was cut in, or came late to, all shares shrink alike
		whole := max(1, s.ended-s.began)
		mine := part * own / whole
		others := min(part-mine, part*othersPrefill/whole)
		p[wire.PartOwn] += time.Duration(mine)
		p[wire.PartOthersPrefill] += time.Duration(others)
		p[wire.PartOthersDecode] += time.Duration(part - mine - others)
	case left != wire.PartCount:
		p[left] += time.Duration(end - w.mark)
	default:
		return // nothing is known of it; it stays unexplained
	}
	w.mark = end
}

func (w *witness) sumKernels(s *stepEntry, member bool, own int64) {
	if !member {
		return
	}
	part := float64(own) / float64(max(1, s.ended-s.began))
	for class := range s.kernels {
		k, sum := &s.kernels[class], &w.kernels[class]
		sum.count += uint64(k.Count)
		sum.wall += int64(k.Total)
		sum.share += int64(float64(k.Total) * part)
		sum.max = max(sum.max, int64(k.Max))
	}
}

// thin keeps most of the steps: half of them those that were waited longest
// for, the rest at even distances, and all in order.
func thin(steps []seenStep, most int) (kept []seenStep, more int) {
	if len(steps) <= most {
		return steps, 0
	}
	order := make([]int, len(steps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(steps[b].waited, steps[a].waited) })
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

// kernelViews are the classes with time, in their own order.
func (w *witness) kernelViews() []KernelView {
	list := []KernelView{}
	for class, k := range w.kernels {
		if k.count > 0 {
			list = append(list, KernelView{wire.KernelClass(class).String(), k.count, ms(k.wall), ms(k.share), ms(k.max)})
		}
	}
	return list
}

// neighbourViews are the others, whoever cost most first.
func (w *witness) neighbourViews(names *requestRing) (list []NeighbourView, more int) {
	byID := map[string]*NeighbourView{}
	list = []NeighbourView{}
	own := map[string]int64{}
	for serial, n := range w.neighbours {
		q, ok := names.find(serial)
		if !ok {
			q.ID = unknownID
		}
		v := byID[q.ID]
		if v == nil {
			v = &NeighbourView{ID: q.ID, ClientID: q.ClientID, Tenant: q.Tenant, Class: q.Class}
			byID[q.ID] = v
		}
		v.Steps = max(v.Steps, n.steps) // prompts of one request share their steps
		v.PrefillTokens += n.prefill
		v.DecodeTokens += n.decode
		own[q.ID] += n.own
	}
	for id, v := range byID {
		v.MS = ms(own[id])
		list = append(list, *v)
	}
	slices.SortFunc(list, func(a, b NeighbourView) int { return cmp.Or(cmp.Compare(b.MS, a.MS), cmp.Compare(a.ID, b.ID)) })
	more = max(0, len(list)-neighboursMax)
	return list[:len(list)-more], more
}

// unknownID stands for requests whose generations are named no more.
const unknownID = "unknown"

// stepViews are the steps that are shown.
func (w *witness) stepViews(names *requestRing) (list []StepView, more int) {
	kept, more := thin(w.steps, stepsMax)
	list = make([]StepView, len(kept))
	for i := range kept {
		s := &kept[i]
		list[i] = s.view
		if s.largest != 0 {
			q, ok := names.find(s.largest)
			if !ok {
				q.ID = unknownID
			}
			list[i].Largest = q.ID
		}
		for class, k := range s.kernels {
			if k.Count > 0 && int64(k.Total)*50 >= s.took {
				list[i].Kernels = append(list[i].Kernels, StepKernel{wire.KernelClass(class).String(), ms(int64(k.Total)), int(k.Count), ms(int64(k.Max))})
			}
		}
	}
	return list, more
}
