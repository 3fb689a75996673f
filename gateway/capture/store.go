package capture

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
)

// Store decides which requests are kept, and keeps them. A nil one keeps none.
// Its methods may be called from any goroutine, Heard from one alone.
type Store struct {
	cfg      Config
	exporter *spans.Exporter // nil sends none
	log      *slog.Logger
	steps    *stepRing
	requests requestRing
	arm      *arm
	disk     *disk // nil for none; of the goroutine run, but for its reading

	jobs     chan job
	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
	running  atomic.Pointer[func() []telemetry.Record]
	waiting  atomic.Int64 // jobs that have no view yet

	mu     sync.Mutex
	ration ration
	full   shelf // with their steps
	brief  shelf
	hung   map[string]bool // running requests that the watchdog has kept
	stats  Stats
}

// job is a request to keep.
type job struct {
	record telemetry.Record
	why    Reasons
	brief  bool
	until  time.Time // for which its last steps are waited for
}

// Stats counts since the start.
type Stats struct {
	Kept      [ReasonCount]uint64 // by the weightiest reason
	Brief     uint64              // of those, without their steps
	Dropped   [DropCount]uint64
	StepsLost uint64 // steps of whose records nothing was heard
	Malformed uint64 // lines on disk that could not be read
	DiskBytes int64
	// DiskErrors are writes that failed.
	DiskErrors uint64
}

// Each calls f with the name and the count of each reason and of each drop.
func (s *Stats) Each(kept, dropped func(name string, n uint64)) {
	for i, n := range s.Kept {
		kept(reasonNames[i], n)
	}
	for i, n := range s.Dropped {
		dropped(Drop(i).String(), n)
	}
}

const (
	jobsMax       = 256
	briefPerFull  = 4
	stepsWait     = 50 * time.Millisecond // for the records of a request's last steps
	stepsWaitTick = 2 * time.Millisecond
	flushLimit    = 2 * time.Second
)

// New makes a Store, nil where it is off. Exporter may be nil; Close the Store
// before it.
func New(cfg Config, exporter *spans.Exporter, log *slog.Logger) (*Store, error) {
	if err := conf.Complete("capture", &cfg); err != nil || cfg.Off {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		cfg: cfg, exporter: exporter, log: log, steps: newStepRing(cfg.StepsKept),
		jobs: make(chan job, jobsMax), stop: make(chan struct{}), done: make(chan struct{}),
		ration: ration{rate: cfg.Rate, burst: float64(cfg.Burst), every: cfg.BaselineEvery, classes: map[string]*classRation{}},
		arm:    newArm(&cfg),
		full:   newShelf(cfg.KeptMax), brief: newShelf(briefPerFull * cfg.KeptMax), hung: map[string]bool{},
	}
	if cfg.DiskFolder != "" {
		var err error
		if s.disk, err = openDisk(&s.cfg); err != nil {
			return nil, err
		}
		s.restore()
	}
	go s.run()
	return s, nil
}

// Watch makes the Store look at the running requests, of which running gives
// copies. It comes once, before the first of them.
func (s *Store) Watch(running func() []telemetry.Record) {
	if s != nil {
		s.running.Store(&running)
	}
}

// Heard takes what is new in the engine's state. States come in order.
func (s *Store) Heard(state *wire.State) {
	if s != nil {
		s.steps.hear(state.Steps)
	}
}

// Started names the generations of r, which is about to be dispatched.
func (s *Store) Started(r *telemetry.Record) {
	if s == nil {
		return
	}
	for i := range uint64(max(1, r.Prompts)) {
		s.requests.put(Requester{r.Serial + i, r.ID, r.ClientID, r.Tenant, r.Class})
	}
}

// Requester is whose generation has the serial, of the last ones.
func (s *Store) Requester(serial uint64) (Requester, bool) {
	if s == nil {
		return Requester{}, false
	}
	return s.requests.find(serial)
}

// Offer decides whether r, which has ended, is kept, and reports that. It never
// waits, and copies r.
func (s *Store) Offer(r *telemetry.Record) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.ration.class(r.Class)
	if r.Dispatched != 0 {
		s.ration.number++
	}
	why := Decide(r, s.ration.usual(c, r), s.ration.number, s.ration.every)
	if s.hung[r.ID] { // its end replaces what the watchdog kept
		why |= Hung
	}
	if why&slow != 0 && r.Dispatched != 0 {
		s.arm.after(r.ID, time.Now())
	}
	return why != 0 && s.keep(c, r, why)
}

// keep hands r to the goroutine that keeps, if there is room for it. The caller
// holds mu.
func (s *Store) keep(c *classRation, r *telemetry.Record, why Reasons) bool {
	drop, ok := s.ration.take(c, r.Tenant, why, causeOf(r), wire.Monotonic())
	brief := !ok && why&Hung == 0 // of those the end is kept where the running one was
	// Who ran and missed a goal, or whose caller keeps the trace, has one whatever
	// others took.
	if brief && (why&(slow|Sampled) == 0 || r.Dispatched == 0) {
		s.stats.Dropped[drop]++
		return false
	}
	select {
	case s.jobs <- job{record: *r, why: why, brief: brief}:
	default:
		s.stats.Dropped[DropBusy]++
		return false
	}
	s.waiting.Add(1)
	s.stats.Kept[why.first()]++
	if brief {
		s.stats.Brief++
	}
	return true
}

// run makes views of what is kept, and looks at what runs, until Close.
func (s *Store) run() {
	defer close(s.done)
	tick := time.NewTicker(s.cfg.CheckInterval)
	defer tick.Stop()
	var early []job // of whose last steps no record has come yet
	for {
		var look <-chan time.Time
		if len(early) > 0 {
			look = time.After(stepsWaitTick)
		}
		select {
		case j := <-s.jobs:
			if j.until = time.Now().Add(stepsWait); s.ready(&j) {
				s.shelve(&j)
			} else {
				early = append(early, j)
			}
		case <-look:
			early = slices.DeleteFunc(early, func(j job) bool {
				ready := s.ready(&j)
				if ready {
					s.shelve(&j)
				}
				return ready
			})
		case <-tick.C:
			s.check()
		case <-s.stop:
			s.shelveAll(early)
			return
		}
	}
}

// ready tells that nothing more will be known of a job: the end of a stream may
// come before the record of its last step.
func (s *Store) ready(j *job) bool {
	ended, _ := s.steps.newest()
	return j.brief || ended >= j.record.Engine.Finished || time.Now().After(j.until)
}

// shelveAll ends the jobs as they are, those that wait too.
func (s *Store) shelveAll(early []job) {
	for i := range early {
		s.shelve(&early[i])
	}
	for {
		select {
		case j := <-s.jobs:
			s.shelve(&j)
		default:
			return
		}
	}
}

// shelve makes the view of a job and puts it where it is kept.
func (s *Store) shelve(j *job) {
	defer s.waiting.Add(-1)
	v := s.build(&j.record, j.why, j.brief, wire.Monotonic())
	s.put(v)
	if v.Running {
		return // its end comes here too
	}
	s.exporter.ExportRequest(v.spans(j.record.Arrived))
	if !v.Brief && j.why&^quiet != 0 {
		s.log.Info("a request was kept", "id", v.ID, "trace_id", v.TraceID, "tenant", v.Tenant, "class", v.Class, "reasons", v.Reasons,
			"outcome", v.Outcome, "wall_ms", v.WallMS, "cause", v.Cause, "sentence", v.Sentence)
	}
	if s.disk == nil {
		return
	}
	if err := s.disk.write(v); err != nil {
		s.mu.Lock()
		s.stats.DiskErrors++
		first := s.stats.DiskErrors == 1
		s.mu.Unlock()
		if first {
			s.log.Warn("a kept request could not be written; further such errors are counted", "error", err)
		}
	}
}

func (s *Store) put(v *View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.Brief {
		s.brief.put(v)
	} else {
		s.full.put(v)
	}
}

// Close keeps what waits, and waits for that. It is idempotent.
func (s *Store) Close() {
	if s == nil {
		return
	}
	s.stopOnce.Do(func() { close(s.stop) })
	s.arm.close()
	<-s.done
	if s.disk != nil {
		s.disk.close()
	}
}

// flush waits until what was kept before has its view.
func (s *Store) flush() {
	for until := time.Now().Add(flushLimit); s.waiting.Load() > 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
}

// Stats returns the counts of this moment.
func (s *Store) Stats() Stats {
	if s == nil {
		return Stats{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	_, stats.StepsLost = s.steps.newest()
	if s.disk != nil {
		stats.Malformed, stats.DiskBytes = s.disk.malformed, s.disk.bytes.Load()
	}
	return stats
}

// Find is the newest request, kept or running, of the id, client's id or trace
// id; nil where there is none. It must not be changed.
func (s *Store) Find(name string) *View {
	if s == nil || name == "" {
		return nil
	}
	if r := s.runningRecord(name); r != nil {
		return s.build(r, 0, false, wire.Monotonic())
	}
	s.flush()
	s.mu.Lock()
	full, brief := s.full.find(name), s.brief.find(name)
	s.mu.Unlock()
	if full == nil || brief != nil && brief.Arrived.After(full.Arrived) {
		return brief
	}
	return full
}

// Has tells whether a request of that id is kept, or about to be.
func (s *Store) Has(id string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full.find(id) != nil || s.brief.find(id) != nil
}

// Filter chooses among requests; its zero value takes all.
type Filter struct {
	Running bool // those that run, in place of those that are kept
	Slow    bool // over a goal of their class, or unusual
	Failed  bool // no whole answer: failed, refused, or left by their client
	Class   string
	Tenant  string
	Model   string
	Since   time.Time
	Limit   int // 0 is all
}

// admits tells whether v is among those of the filter.
func (f *Filter) admits(v *View) bool {
	switch {
	case f.Class != "" && v.Class != f.Class, f.Tenant != "" && v.Tenant != f.Tenant, f.Model != "" && v.Model != f.Model, v.Arrived.Before(f.Since):
		return false
	case f.Slow && len(v.Broken) == 0 && !slices.ContainsFunc(v.Reasons, func(name string) bool {
		return name == reasonNames[Unusual.first()] || name == reasonNames[Hung.first()]
	}):
		return false
	case f.Failed && (v.Outcome == telemetry.OK.String() || v.Running):
		return false
	}
	return true
}

// List is the kept requests of the filter, or those that run, the newest first.
// They must not be changed.
func (s *Store) List(f Filter) []*View {
	if s == nil {
		return nil
	}
	var all []*View
	if f.Running {
		now := wire.Monotonic()
		for _, r := range s.runningRecords() {
			all = append(all, s.build(&r, 0, true, now))
		}
	} else {
		s.flush()
		s.mu.Lock()
		all = slices.Concat(s.full.ring, s.brief.ring)
		s.mu.Unlock()
	}
	all = slices.DeleteFunc(all, func(v *View) bool { return v == nil || !f.admits(v) })
	slices.SortStableFunc(all, func(a, b *View) int { return cmp.Or(b.Arrived.Compare(a.Arrived), cmp.Compare(a.ID, b.ID)) })
	if f.Limit > 0 && len(all) > f.Limit {
		all = all[:f.Limit]
	}
	return all
}

// Neighbours are the others in the steps of a request, as Find's.
func (s *Store) Neighbours(name string) []NeighbourView {
	if v := s.Find(name); v != nil {
		return v.Neighbours
	}
	return nil
}
