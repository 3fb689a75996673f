package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/engine/chat"
	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/demo"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gpu"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/repack"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// loaded is a loaded model with its tokenizer, template and costs.
type loaded struct {
	info      wire.Model
	model     forwarder
	set       *kernels.Set
	gpu       *gpu.Device // nil where the CPU computes
	monitor   *monitor    // of the GPU, or nil
	tokenizer *tokenizer.Tokenizer
	tokens    *tokenizer.Cache // encodes prompts with the tokenizer
	template  *chat.Template   // nil where info.ChatError says why
	speech    speech           // of the template
	pair      *chat.Pair       // of a ranker with a template, else nil
	width     int              // of a row that the model returns: logits of a token; the tokenizer may know fewer
	batch     int              // most tokens of a step
	embedder  *model.Model     // nil of a model that generates
	pages     int
	pageBytes int
	windows   cache.Windows
	states    int            // 0 in a model without recurrent layers
	closers   []func() error // in the order of opening
	fit       cost.Fit       // the cost of steps, as known before the first
	keeper    keeper
	images    imageKeeper

	toolFormat string // Config.ToolFormat
}

// wholeTexts says that prompts take nothing from the cache.
func (p *loaded) wholeTexts() bool {
	if p.embedder == nil {
		return false
	}
	c := p.embedder.Config()
	return c.WholeTexts()
}

// wholeSteps says that a prompt is computed in one step.
func (p *loaded) wholeSteps() bool { return p.embedder != nil && p.embedder.Config().Encoder.On }

// close frees everything, the last opened first.
func (p *loaded) close() error {
	var err error
	for len(p.closers) > 0 {
		last := len(p.closers) - 1
		err = errors.Join(err, p.closers[last]())
		p.closers = p.closers[:last]
	}
	return err
}

// load opens the model that the configuration names.
func load(cfg *Config) (loaded, error) {
	var p loaded
	if err := p.load(cfg); err != nil {
		return loaded{}, errors.Join(fmt.Errorf("engine: load model: %w", err), p.close())
	}
	return p, nil
}

func (p *loaded) load(cfg *Config) error {
	p.set = kernels.Best()
	if cfg.Kernels != "" {
		var err error
		if p.set, err = kernels.Lookup(cfg.Kernels); err != nil {
			return err
		}
	}
	f, err := open(cfg.Model)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, f.Close)
	// Before the tokenizer, whose tables take more memory than the file gives them:
	// a file that is no model is refused first.
	if _, err := model.ReadConfig(f.File); err != nil {
		return err
	}
	if p.tokenizer, err = f.Tokenizer(); err != nil {
		return err
	}
	for _, doubt := range p.tokenizer.Doubts() {
		cfg.Log.Warn("the model's tokenizer is not as it should be", "model", f.Name(), "what", doubt)
	}
	p.tokens = tokenizer.NewCache(p.tokenizer, cfg.TokensCacheBytes)
	weights, err := f.Quantized(cfg.Quantize)
	if err != nil {
		return err
	}
	if err := p.openDevice(cfg, weights); err != nil {
		return err
	}
	p.keeper.open(cfg.CostFile, costKey(weights.Digest(), p.computes()+" "+p.info.Device, cfg), cfg.Log)
	if p.gpu == nil {
		p.chooseKernels(cfg, weights)
	}
	team := kernels.NewTeam(cfg.Threads)
	p.closers = append(p.closers, func() error { team.Close(); return nil })
	m, err := p.loadModel(cfg, weights, team, p.openImage(cfg, f, weights, team))
	if err != nil {
		return err
	}
	p.describe(cfg, f.ID(), weights, m)
	if p.toolFormat = cfg.ToolFormat; p.toolFormat == "" && cfg.Model == "" {
		p.toolFormat = demo.ToolFormat
	}
	p.loadTemplate(f.Chat())
	return p.loadPair(f.Chat())
}

// chooseKernels decides what the set leaves open for these weights, and warns where it has
// no product of them.
func (p *loaded) chooseKernels(cfg *Config, weights *gguf.File) {
	var quantised kernels.Type // the one with most bytes, if there is any
	for _, use := range weights.TypeUses() {
		if quantised.BlockLen() == 1 {
			quantised = use.Type
		}
		if !p.set.InAssembly(use.Type) && p.set.Name != "ref" {
			cfg.Log.Warn("the kernel set multiplies these weights in plain Go, many times slower than others do; engine.quantize makes them another type", "kernels", p.set.Name, "type", use.Type)
		}
	}
	p.chooseManyRows(quantised, !cfg.SelfBenchmarkOff)
}

func open(path string) (*checkpoint.Checkpoint, error) {
	if path == "" {
		return checkpoint.Parse(demo.Name+".gguf", demo.GGUF())
	}
	return checkpoint.Open(path)
}

// loadModel sizes the pool and loads the weights, from im if it is not nil.
func (p *loaded) loadModel(cfg *Config, f *gguf.File, team *kernels.Team, im *repack.Image) (*model.Model, error) {
	c, err := model.ReadConfig(f)
	if err != nil {
		return nil, err
	}
	context := c.ContextTokens
	if cfg.ContextTokens > context {
		return nil, fmt.Errorf("engine.context_tokens is %d; %s was trained for %d, give at most that", cfg.ContextTokens, f.Name(), context)
	}
	if cfg.ContextTokens > 0 {
		context = cfg.ContextTokens
	}
	kvType, err := kernels.ParseKVType(cfg.KVType)
	if err != nil {
		return nil, fmt.Errorf("engine.kv_type: %w", err)
	}
	if p.gpu == nil && kvType.GPUOnly() {
		return nil, fmt.Errorf("engine.kv_type is %s, which is kept on a GPU alone, and the device is %s; on the CPU give f32, f16 or int8", kvType, p.info.Device)
	}
	if p.states, err = cfg.stateCount(c.StateBytes()); err != nil {
		return nil, err
	}
	batch := cfg.BatchTokensMax
	if c.Encoder.On {
		batch = max(batch, context) // a text is computed in one step
	}
	var paging model.Paging
	paging, p.windows = cfg.Paging(&c, kvType, context, p.gpu != nil)
	p.pageBytes = paging.PageBytes
	o := model.Options{
		ContextTokens: context, PageTokens: cfg.PageTokens, States: p.states, BatchTokensMax: batch, KVType: kvType, Device: p.deviceOption(),
		Windows: p.windows.Pages > 0,
	}
	if p.pages, err = p.cachePages(cfg, &c, f, o); err != nil {
		return nil, err
	}
	o.Pages = p.pages
	if im != nil {
		o.Packed = im
	}
	m, err := model.Load(f, p.set, team, o)
	if err != nil {
		return nil, err
	}
	if _, reused := m.Packed(); im != nil {
		cfg.Log.Info("a repack image is there", "used", reused)
	}
	p.model, p.width, p.batch = m, c.RowWidth(), batch
	if c.Pooling != model.PoolNone {
		p.embedder = m
	}
	p.closers = append(p.closers, m.Close)
	return m, nil
}

// mathVersion changes with the engine's arithmetic. It is part of the
// fingerprint, which promises equal bits.
const mathVersion = 4

func (p *loaded) describe(cfg *Config, id string, f *gguf.File, m *model.Model) {
	c := m.Config()
	digest := f.Digest()
	print := xxh3.HashString(fmt.Sprintf("%s %s %s %d", digest, p.computes(), m.Options().KVType, mathVersion))
	if cfg.ModelID != "" {
		id = cfg.ModelID
	}
	p.info = wire.Model{
		ID: id, Architecture: c.Architecture, Digest: digest, Fingerprint: fmt.Sprintf("fp_%016x", print),
		Kernels: p.computes(), Device: p.info.Device, Quantisation: f.TypeUses()[0].Type.String(),
		ContextTokens: m.Options().ContextTokens, VocabTokens: min(p.tokenizer.Size(), c.Vocab),
		Parameters: int64(m.Parameters()), WeightBytes: int64(m.WeightBytes()),
		PageTokens: cfg.PageTokens, PageBytes: m.PageBytes(), WindowPages: p.windows.Pages, WindowTokens: p.windows.TokensMax(cfg.PageTokens), StateBytes: m.StateBytes(), CreatedUnix: time.Now().Unix(),
	}
	if p.embedder != nil {
		p.info.EmbeddingWidth, p.info.Ranks = c.VectorWidth(), c.Pooling == model.PoolRank
	}
}

// loadTemplate compiles the chat template; a model without a usable one still
// completes text.
func (p *loaded) loadTemplate(c chat.Config, err error) {
	if err == nil && c.Template == "" {
		err = errors.New("the model has no chat template")
	}
	if err == nil {
		p.template, err = chat.New(c.Template, chat.Options{
			BOS: c.BOS, EOS: c.EOS, ToolUse: c.ToolUse, Controls: p.tokenizer.ControlStrings(),
		})
	}
	if err != nil {
		p.info.ChatError = err.Error()
		return
	}
	p.speech = newSpeech(p.template, c.Template, p.tokenizer, p.toolFormat)
	p.info.Chat, p.info.ToolFormat = true, p.speech.found.Format.Name
	p.info.ThinkSwitch, p.info.Efforts = p.speech.toggle != "", len(p.speech.efforts) > 0
	if p.info.ToolsError = ""; p.speech.noPlace != nil {
		p.info.ToolsError = p.speech.noPlace.Error()
	}
}
