package capture

import (
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

// Store decides which requests are kept, and keeps them. A nil Store keeps none.
// Its methods may be called from any goroutine, Heard from one goroutine alone.
type Store struct {
	cfg      Config
	exporter *spans.Exporter // nil sends none
	log      *slog.Logger
	steps    *stepRing
	requests requestRing
	arm      *arm
	disk     *disk // nil for none; written by the goroutine run alone

	jobs     chan job
	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
	running  atomic.Pointer[func() []telemetry.Record]
	waiting  atomic.Int64 // jobs that are not on a shelf yet

	mu     sync.Mutex
	quota  quota
	usuals usuals
	full   shelf // with their steps
	brief  shelf
	hung   map[string]bool // running requests that the watchdog has kept
	stats  Stats
}

// job is a request to keep.
type job struct {
	record telemetry.Record
	why    reasons
	brief  bool
	until  time.Time // the longest wait for its last steps
}

// Stats counts since the start.
type Stats struct {
	Kept      [reasonCount]uint64 // by the most important reason
	Brief     uint64              // the part of Kept without steps
	Dropped   [dropCount]uint64
	StepsLost uint64 // steps whose records did not come
	Malformed uint64 // lines on disk that could not be read
	DiskBytes int64
	// DiskErrors are writes that failed.
	DiskErrors uint64
}

// Each calls kept with the name and count of each reason to keep, and dropped
// with those of each reason to drop.
func (s *Stats) Each(kept, dropped func(name string, n uint64)) {
	for i, n := range s.Kept {
		kept(reasonNames[i], n)
	}
	for i, n := range s.Dropped {
		dropped(drop(i).String(), n)
	}
}

const (
	jobsMax       = 256
	briefPerFull  = 4
	stepsWait     = 50 * time.Millisecond // for the records of a request's last steps
	stepsWaitTick = 2 * time.Millisecond
	flushLimit    = 2 * time.Second
)

// New makes a Store, nil if cfg says Off. The exporter may be nil; close the Store
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
		quota:  quota{rate: cfg.Rate, burst: float64(cfg.Burst), every: cfg.BaselineEvery, classes: map[string]*classQuota{}},
		arm:    newArm(&cfg),
		usuals: usuals{most: cfg.UsualGroupsMax, groups: map[size]*group{}},
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

// Watch tells the Store how to get copies of the records of running requests.
// Call it once, before the first request.
func (s *Store) Watch(running func() []telemetry.Record) {
	if s != nil {
		s.running.Store(&running)
	}
}

// Heard takes the new steps of the engine's state. States must come in order.
func (s *Store) Heard(state *wire.State) {
	if s != nil {
		s.steps.hear(state)
	}
}

// Started notes the names of r's generations just before they are dispatched.
func (s *Store) Started(r *telemetry.Record) {
	if s == nil {
		return
	}
	for i := range uint64(max(1, r.Prompts)) {
		s.requests.put(requester{r.Serial + i, r.ID, r.ClientID, r.Tenant, r.Class})
	}
}

// Offer decides whether r, which has ended, is kept, and reports it. It never
// waits, and it copies r.
func (s *Store) Offer(r *telemetry.Record) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.quota.class(r.Class)
	if r.Dispatched != 0 {
		s.quota.number++
	}
	why := decide(r, s.quota.usual(c, r), s.quota.number, s.quota.every)
	s.usuals.add(r)
	if s.hung[r.ID] { // what is kept now replaces what the watchdog kept
		why |= reasonHung
	}
	if why&slow != 0 && r.Dispatched != 0 {
		s.arm.after(r.ID, time.Now())
	}
	return why != 0 && s.keep(c, r, why)
}

// keep hands r to the goroutine run if the quota and the channel have room. The
// caller holds mu.
func (s *Store) keep(c *classQuota, r *telemetry.Record, why reasons) bool {
	drop, ok := s.quota.take(c, r.Tenant, why, causeOf(r), wire.Monotonic())
	brief := !ok && why&reasonHung == 0 // the end of a hung request must replace it on the same shelf
	// A request that was admitted and missed a goal, or whose caller's trace is
	// sampled, is kept beyond the quota too: the many that are refused on arrival in an
	// overload must not hide those that had been promised something.
	if admitted := r.Accepted != 0 || r.Dispatched != 0; brief && (why&(slow|reasonSampled) == 0 || !admitted) {
		s.stats.Dropped[drop]++
		return false
	}
	select {
	case s.jobs <- job{record: *r, why: why, brief: brief}:
	default:
		s.stats.Dropped[dropBusy]++
		return false
	}
	s.waiting.Add(1)
	s.stats.Kept[why.first()]++
	if brief {
		s.stats.Brief++
	}
	return true
}

// run puts kept requests on the shelves, and checks running ones, until Close.
func (s *Store) run() {
	defer close(s.done)
	tick := time.NewTicker(s.cfg.CheckInterval)
	defer tick.Stop()
	var early []job // they wait for the records of their last steps
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

// ready tells that all steps of a job have come or will not come. The end of a
// stream may come before the record of its last step.
func (s *Store) ready(j *job) bool {
	ended, _ := s.steps.newest()
	return j.brief || ended >= j.record.Engine.Finished || time.Now().After(j.until)
}

// shelveAll shelves the early jobs and all that are in the channel.
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

// shelve puts a job on its shelf, exports its spans, and writes it to disk.
func (s *Store) shelve(j *job) {
	defer s.waiting.Add(-1)
	k := s.build(&j.record, j.why, j.brief, wire.Monotonic())
	s.put(k)
	v := k.view
	if v.Running {
		return // its end will come here too
	}
	if s.exporter != nil {
		s.exporter.Export(k.trees(s.exporter.Names())...)
	}
	if !v.Brief && j.why&^quiet != 0 {
		s.log.Info("a request was kept", "id", v.ID, "trace_id", v.TraceID, "tenant", v.Tenant, "class", v.Class, "reasons", v.Reasons,
			"outcome", v.Outcome, "wall_ms", v.WallMS, "cause", v.Cause, "sentence", v.Sentence)
	}
	if s.disk == nil {
		return
	}
	if err := s.disk.write(k); err != nil {
		s.mu.Lock()
		s.stats.DiskErrors++
		first := s.stats.DiskErrors == 1
		s.mu.Unlock()
		if first {
			s.log.Warn("a kept request could not be written; further such errors are counted", "error", err)
		}
	}
}

func (s *Store) put(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.view.Brief {
		s.brief.put(k)
	} else {
		s.full.put(k)
	}
}

// Close keeps the waiting requests before it returns. It is idempotent.
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

// flush waits until all requests kept so far are on a shelf.
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

// Spans returns the counts of the spans that were sent.
func (s *Store) Spans() spans.Stats {
	if s == nil {
		return spans.Stats{}
	}
	return s.exporter.Stats()
}
