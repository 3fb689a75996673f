package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/bench/sim"
	"github.com/forebay-io/forebay/internal/supervise"
	"github.com/forebay-io/forebay/internal/wire"
)

// calibrate serves a model as forebay serve does, under changing load of clients of
// its own, and writes what its steps, arrivals and ways cost to output, or prints it
// if output is empty. It reports the error of the predictions on standard error.
func (c *console) calibrate(model, output string, limit time.Duration) (err error) {
	out := c.out
	if output != "" { // opened first: it would be a pity to find out later
		if out, err = os.OpenFile(output, os.O_WRONLY|os.O_CREATE, 0o644); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Close()) }()
	}
	s, err := c.configure(newFlagSet("simulate --calibrate MODEL"), []string{"--model", model, "--listen", "127.0.0.1:0", "--admin", addressOff, "--log-level", "warn"})
	if err != nil {
		return err
	}
	s.Admission, s.Budget = admission.Config{}, budget.Config{} // keys and budgets would refuse the clients
	server, err := c.openCalibrated(s)
	if err != nil {
		return err
	}
	e, samples, err := server.measure(limit)
	if cause := context.Cause(server.ctx); cause != nil {
		err = fmt.Errorf("the calibration was stopped: %w", cause)
	}
	server.close()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, "forebay: %d steps of %s; they took %.2f times what was predicted in the median, and %.2f times at 90 %%\n",
		len(samples), e.Name, e.Ratio(samples, 0.5), e.Ratio(samples, 0.9))
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	if output != "" {
		if err := out.Truncate(0); err != nil {
			return err
		}
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// calibrated is a server in this process, its engine a child as under serve.
type calibrated struct {
	settings *settings
	front    *front
	client   loadClient
	ctx      context.Context
	closers  []func() // in the order of building
}

// openCalibrated starts the server, and waits until it is ready.
func (c *console) openCalibrated(s *settings) (_ *calibrated, err error) {
	b := &calibrated{settings: s}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	dir, err := makeRunDir(c.runDirParent())
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, dir.remove)
	s.Socket.Path = dir.socket()
	ctx, stop := untilSignal(dir.remove, nil)
	b.closers = append(b.closers, stop)
	log := c.logger(s.Log, "gateway")
	if err := c.fetchModel(ctx, &s.Engine, log, func(string) {}); err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program to start the engine: %w", err)
	}
	child := supervise.New(s.Supervise, supervise.Child{
		Path: func() string { return thisProgram(exe) }, Name: "forebay", Args: s.engineArgs(), Env: c.engineEnviron(s.schema),
		Output: c.err, Prefix: "engine: ", Log: log,
	})
	quiet := *c
	quiet.records = io.Discard
	if b.front, err = openFront(&quiet, s, child); err != nil {
		return nil, s.schema.Place(err)
	}
	b.closers = append(b.closers, b.front.close)
	b.run(ctx, child)
	if b.front.client.WaitReady(b.ctx) != nil {
		return nil, context.Cause(b.ctx)
	}
	m := &b.front.client.State().Model
	b.client = loadClient{address: b.front.api.Addr().String(), model: m.ID, chat: m.ChatError == "", vocab: m.VocabTokens}
	b.closers = append(b.closers, b.client.close)
	return b, nil
}

// run runs gateway and engine until close. Their context ends with ctx, or with the
// engine.
func (b *calibrated) run(ctx context.Context, child *supervise.Supervisor) {
	ctx, fail := context.WithCancelCause(ctx)
	b.ctx = ctx
	engineCtx, stopEngine := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fail(fmt.Errorf("the engine ended: %w", child.Run(engineCtx)))
	}()
	go b.front.gateway.Serve(b.front.api)
	b.closers = append(b.closers, func() {
		b.front.view.stopping.Store(true)
		stopEngine()
		<-ended
	}, func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		b.front.gateway.Shutdown(now)
	})
}

func (b *calibrated) close() {
	for _, closer := range slices.Backward(b.closers) {
		closer()
	}
}

// The load of a calibration: how many long requests run at once in each round, and how
// many short ones arrive, in units of what the server can do. A long request's
// prompt has up to calibratePromptMax tokens, its answer up to calibrateOutputMax.
var (
	calibrateRounds = []int{1, 2, 4, 8, 16, 32}
	calibrateLoads  = []float64{2, 8}
)

const (
	calibratePromptMax = 1024
	calibrateOutputMax = 64
	calibrateClients   = 12 // that measure what the server can do
	calibrateLone      = 9  // requests that measure the ways
	calibrateTurns     = 3
	calibrateWayLoad   = 0.4 // at which the way in is measured again
)

// measure loads the server for about limit, in turns of the same loads, so that none of
// them alone meets a slow moment of the machine.
func (b *calibrated) measure(limit time.Duration) (*sim.Engine, []sim.Sample, error) {
	m := &course{stepSamples: stepSamples{log: b.front.client.State().Steps, contexts: map[uint64]int{}}, turn: limit / calibrateTurns}
	b.client.lone(b.ctx) // it reads weights that are in no cache yet
	in, out, err := b.ways(&m.stepSamples)
	if err != nil {
		return nil, nil, err
	}
	for range calibrateTurns {
		if err := b.turn(m); err != nil {
			return nil, nil, err
		}
	}
	e := b.engineFile()
	e.WayInMS, e.WayOutMS = in, out
	if err := e.Learn(m.samples); err != nil {
		return nil, nil, err
	}
	return e, m.samples, learnWay(e, m.answers, m.answering)
}

// course is what a calibration has measured so far.
type course struct {
	stepSamples
	turn   time.Duration // the length of one
	rounds int           // of long requests

	answers   []loadAnswer // of the load at which the way in is measured
	answering []sim.Sample // steps of that load
}

// turn runs each load once. Half of it are rounds of long requests, the other half
// short ones, beside which admission refuses what is too much.
func (b *calibrated) turn(m *course) error {
	for began, first := time.Now(), true; first || time.Since(began) < m.turn/2; first = false {
		if err := b.longRound(calibrateRounds[m.rounds%len(calibrateRounds)], uint64(m.rounds)); err != nil {
			return err
		}
		m.rounds++
		m.read(&b.client)
	}
	part := m.turn / time.Duration(2*(2+len(calibrateLoads)))
	rate, err := b.client.closedLoop(b.ctx, calibrateClients, part, &m.stepSamples)
	if err != nil {
		return err
	}
	before := len(m.samples)
	answers, err := b.client.openLoop(b.ctx, calibrateWayLoad*rate, part, &m.stepSamples)
	if err != nil {
		return err
	}
	m.answers, m.answering = append(m.answers, answers...), append(m.answering, m.samples[before:]...)
	for _, load := range calibrateLoads {
		if _, err := b.client.openLoop(b.ctx, load*rate, part, &m.stepSamples); err != nil {
			return err
		}
	}
	return nil
}

// learnWay learns the way in of requests that came while the server had little to do,
// and of the steps that computed them.
func learnWay(e *sim.Engine, asked []loadAnswer, steps []sim.Sample) error {
	var arrivals, waits []time.Duration
	for _, a := range asked {
		if a.first > 0 {
			arrivals, waits = append(arrivals, time.Duration(a.sent)), append(waits, time.Duration(a.first-a.sent))
		}
	}
	if len(waits) == 0 {
		return nil
	}
	tokens := 0
	for _, s := range steps {
		tokens += s.Load.PrefillTokens
	}
	slices.Sort(arrivals)
	slices.Sort(waits)
	return e.LearnWay(arrivals, tokens/len(waits), loadTokens, waits[len(waits)/2])
}

// engineFile is the engine as its state and configuration say.
func (b *calibrated) engineFile() *sim.Engine {
	s, cfg := b.front.client.State(), &b.settings.Engine
	out := sim.DefaultEngine()
	out.Name = s.Model.ID
	out.KVTokens, out.SequencesMax, out.StepTokensMax = s.PagesTotal*s.Model.PageTokens/(1+s.Model.WindowPages), cfg.SequencesMax, s.Room.TokensMax
	out.StepBudgetMS, out.LongStretch = float64(cfg.StepBudget)/1e6, cfg.LongStretch
	out.BackgroundStretch, out.BatchStretch = cfg.BackgroundStretch, cfg.BatchStretch
	return out
}

// ways measures the ways into the scheduler and out to the client with lone requests,
// in milliseconds: the medians.
func (b *calibrated) ways(steps *stepSamples) (in, out float64, err error) {
	var ins, outs []float64
	for range calibrateLone {
		steps.read(&b.client)
		a, err := b.client.lone(b.ctx)
		if err != nil {
			return 0, 0, err
		}
		began, ended := steps.around(a.sent, a.first)
		if began > 0 && ended > began {
			ins, outs = append(ins, float64(began-a.sent)/1e6), append(outs, float64(a.first-ended)/1e6)
		}
	}
	if len(ins) == 0 {
		return 0, 0, fmt.Errorf("the engine keeps no records of its steps: set engine.step_records_off to false")
	}
	slices.Sort(ins)
	slices.Sort(outs)
	return ins[len(ins)/2], outs[len(outs)/2], nil
}

// stepSamples collects what the engine's records of steps say.
type stepSamples struct {
	log      *wire.StepLog
	seen     uint64         // records of the log
	contexts map[uint64]int // tokens that a generation has computed, by its serial
	samples  []sim.Sample
	last     uint64 // number of the last step
	sent     int    // of the client's arrivals, those up to the end of the last record
}

// read takes the records that are new.
func (s *stepSamples) read(client *loadClient) {
	client.mu.Lock()
	arrivals := client.arrivals
	client.mu.Unlock()
	s.seen = s.log.After(s.seen, func(r *wire.StepRecord) bool {
		sample := sim.Sample{Took: time.Duration(r.Ended - r.Began), Follows: r.Step == s.last+1 && r.Idle == 0}
		for _, m := range r.Members {
			if context := s.contexts[m.Serial]; m.Decode {
				sample.Load.AddRow(context)
			} else {
				sample.Load.AddChunk(m.Tokens, context)
			}
			s.contexts[m.Serial] += m.Tokens
		}
		before := s.sent
		for s.sent < len(arrivals) && arrivals[s.sent] <= r.Ended {
			s.sent++
		}
		if sample.Follows {
			sample.Took += r.Gap // which the engine takes too, to report and to compose
			sample.Arrived = s.sent - before
		}
		s.last = r.Step
		s.samples = append(s.samples, sample)
		return true
	})
}

// around returns when the first step after the instant sent began, and when the last
// one before the instant first ended; 0 for none.
func (s *stepSamples) around(sent, first int64) (began, ended int64) {
	s.log.After(s.seen, func(r *wire.StepRecord) bool {
		if r.Began >= sent && began == 0 {
			began = r.Began
		}
		if r.Ended <= first {
			ended = r.Ended
		}
		return true
	})
	return began, ended
}

// longRound runs n long requests of random tokens at once until all end. They are
// offline, for which there is no goal, so none is refused.
func (b *calibrated) longRound(n int, seed uint64) error {
	m := &b.front.client.State().Model
	rnd := newRand(seed)
	failed := make(chan error, n)
	for range n {
		room := min(calibratePromptMax+calibrateOutputMax, m.ContextTokens)
		prompt := 1 + rnd.IntN(max(1, room-calibrateOutputMax))
		r := loadRequest{tokens: prompt, output: max(1, min(calibrateOutputMax, room-prompt)), class: "offline", seed: rnd.Uint64()}
		go func() {
			_, err := b.client.ask(b.ctx, &r)
			failed <- err
		}()
	}
	var err error
	for range n {
		if e := <-failed; err == nil {
			err = e
		}
	}
	return err
}
