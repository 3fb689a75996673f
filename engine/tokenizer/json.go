package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// JSONSource holds the tokenizer files of a Hugging Face model.
type JSONSource struct {
	Tokenizer  []byte // tokenizer.json
	Config     []byte // tokenizer_config.json, or nil
	Generation []byte // generation_config.json, or nil: further tokens that end an answer
}

// jsonFile is tokenizer.json, the format of the tokenizers library.
type jsonFile struct {
	AddedTokens   []addedToken `json:"added_tokens"`
	Normalizer    *component   `json:"normalizer"`
	PreTokenizer  *component   `json:"pre_tokenizer"`
	PostProcessor *component   `json:"post_processor"`
	Decoder       *component   `json:"decoder"`
	Model         jsonModel    `json:"model"`
}

type addedToken struct {
	ID             int32
	Content        string
	Special        bool
	LStrip, RStrip bool
	SingleWord     bool `json:"single_word"`
}

type jsonModel struct {
	Type         string
	Vocab        []vocabEntry `json:"-"` // as readTables finds them
	Merges       []mergeParts `json:"-"`
	UnkToken     string       `json:"unk_token"`
	Dropout      *float64     `json:"dropout"`
	Prefix       string       `json:"continuing_subword_prefix"`
	Suffix       string       `json:"end_of_word_suffix"`
	FuseUnk      bool         `json:"fuse_unk"`
	ByteFallback bool         `json:"byte_fallback"`
	IgnoreMerges bool         `json:"ignore_merges"`
	WordRunesMax *int         `json:"max_input_chars_per_word"`
	Scores       []float32    `json:"-"` // of a unigram model's Vocab
	UnkID        *int32       `json:"unk_id"`
}

// component is a part of the pipeline, with the fields of all types.
type component struct {
	Type string

	Normalizers   []component
	PreTokenizers []component `json:"pretokenizers"`
	Processors    []component
	Decoders      []component

	Pattern  struct{ String, Regex *string }
	Content  string
	Prepend  string
	Behavior string
	Invert   bool

	AddPrefixSpace   *bool `json:"add_prefix_space"`
	UseRegex         *bool `json:"use_regex"`
	IndividualDigits bool  `json:"individual_digits"`
	Replacement      string
	PrependScheme    string `json:"prepend_scheme"`
	Split            *bool
	Start            int

	Charsmap   []byte `json:"precompiled_charsmap"`
	StripRight bool   `json:"strip_right"`

	CleanText    *bool `json:"clean_text"`
	Ideographs   *bool `json:"handle_chinese_chars"`
	StripAccents *bool `json:"strip_accents"`
	Lowercase    *bool

	Single, Pair  []piece
	SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
	CLS, SEP      namedToken
}

// piece is a special token of a template, or the place of a text.
type piece struct {
	SpecialToken *struct{ ID string }
	Sequence     *struct{ ID string }
}

// flat lists the components of a sequence, or the component itself.
func (c *component) flat() []component {
	if c == nil {
		return nil
	}
	if c.Type != "Sequence" {
		return []component{*c}
	}
	var all []component
	for _, list := range [][]component{c.Normalizers, c.PreTokenizers, c.Processors, c.Decoders} {
		for i := range list {
			all = append(all, list[i].flat()...)
		}
	}
	return all
}

func isTrue(b *bool) bool { return b == nil || *b }

// pipeline is the combined meaning of the components.
type pipeline struct {
	pre        pretokenizer
	byteLevel  bool
	spaces     bool // a space becomes U+2581
	prefix     prefix
	unigram    *unigramParts // nil with other models
	words      bool          // WordPiece's cleaning and cutting
	normalized bool          // by WordPiece's normalizer
	lowercase  bool          // by it
	strip      bool          // decoding drops a leading space
	before     []int32
	after      []int32
	between    []int32
}

// FromJSON reads a tokenizer.json. It refuses every unknown component, pattern and
// option by name.
func FromJSON(name string, src JSONSource) (*Tokenizer, error) {
	t, err := fromJSON(src)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

func fromJSON(src JSONSource) (*Tokenizer, error) {
	var f jsonFile
	rest, err := f.Model.readTables(string(src.Tokenizer))
	if err == nil {
		err = json.Unmarshal(rest, &f)
	}
	if err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	if err := f.Model.check(); err != nil {
		return nil, err
	}
	var config tokenizerConfig
	if src.Config != nil {
		if err := json.Unmarshal(src.Config, &config); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	if err := f.addTokens(config.Added); err != nil {
		return nil, err
	}
	p, err := f.pipeline()
	if err != nil {
		return nil, err
	}
	v, err := f.vocabulary(p.byteLevel)
	if err != nil {
		return nil, err
	}
	v.controlEnds()
	v.controlNamed(&config)
	t := newTokenizer(v)
	t.prefix, t.strip, t.before, t.after, t.between = p.prefix, p.strip, p.before, p.after, p.between
	texts, err := t.jsonEncoder(&f.Model, p)
	if err != nil {
		return nil, err
	}
	return t, t.finishJSON(&config, src.Generation, texts)
}

const typeWordPiece = "WordPiece"

func (m *jsonModel) check() error {
	switch {
	case m.Type == typeWordPiece && (m.Prefix != continues || m.WordRunesMax != nil && *m.WordRunesMax != wordRunesMax):
		return fmt.Errorf("model: continuing_subword_prefix and max_input_chars_per_word are not %q and %d, which is not supported", continues, wordRunesMax)
	case m.Type == typeWordPiece && len(m.Vocab) > 0:
		return nil
	case m.Type == typeUnigram && len(m.Vocab) > 0 && len(m.Scores) == len(m.Vocab):
		return nil
	case len(m.Scores) > 0:
		return fmt.Errorf("model of type %.60q has a vocab of scores, as one of type %s has", m.Type, typeUnigram)
	case m.Type != "BPE" && m.Type != "":
		return fmt.Errorf("model of type %.60q is not supported; supported are BPE, %s and %s", m.Type, typeWordPiece, typeUnigram)
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("model: dropout is %g; supported is none", *m.Dropout)
	case m.Prefix != "" || m.Suffix != "":
		return errors.New("model: continuing_subword_prefix and end_of_word_suffix are not supported")
	case len(m.Vocab) == 0:
		return errors.New("model: vocab is empty")
	}
	return nil
}

// tokensMax bounds ids, and with them the tables.
const tokensMax = 1 << 22

// vocabulary makes the token table from the vocabulary and the added tokens.
func (f *jsonFile) vocabulary(byteLevel bool) (*vocabulary, error) {
	size := 0
	note := func(text string, id int32) error {
		if id < 0 || id >= tokensMax {
			return fmt.Errorf("token %.60q has the id %d; allowed are 0 to %d", text, id, tokensMax-1)
		}
		size = max(size, int(id)+1)
		return nil
	}
	for _, e := range f.Model.Vocab {
		if err := note(e.text, e.id); err != nil {
			return nil, err
		}
	}
	for _, a := range f.AddedTokens {
		if err := note(a.Content, a.ID); err != nil {
			return nil, err
		}
	}
	if tokens := len(f.Model.Vocab) + len(f.AddedTokens); size > 2*tokens+1024 {
		return nil, fmt.Errorf("%d tokens have ids up to %d", tokens, size-1)
	}
	v := &vocabulary{texts: make([]string, size), kinds: make([]kind, size), ids: make(map[string]int32, size), flags: map[int32]tokenFlags{}}
	for id := range v.kinds {
		v.kinds[id] = kindUnused
	}
	for _, e := range f.Model.Vocab {
		if other := v.texts[e.id]; v.kinds[e.id] != kindUnused && other != e.text {
			return nil, fmt.Errorf("model: vocab: %.60q and %.60q both have the id %d", other, e.text, e.id)
		}
		v.texts[e.id], v.kinds[e.id] = e.text, kindNormal
		if !byteLevel && f.Model.ByteFallback {
			if _, ok := parseByte(e.text); ok {
				v.kinds[e.id] = kindByte
			}
		}
	}
	for _, a := range f.AddedTokens {
		v.texts[a.ID], v.kinds[a.ID] = a.Content, kindUser
		if a.Special {
			v.kinds[a.ID] = kindControl
		}
		if a.LStrip || a.RStrip || a.SingleWord {
			v.flags[a.ID] = tokenFlags{a.LStrip, a.RStrip, a.SingleWord}
		}
	}
	v.index()
	return v, nil
}

// jsonEncoder sets up the encoder and returns the text of each token.
func (t *Tokenizer) jsonEncoder(m *jsonModel, p *pipeline) ([]string, error) {
	switch m.Type {
	case typeWordPiece:
		return t.jsonWordPiece(m, p)
	case typeUnigram:
		return t.jsonUnigram(m, p)
	}
	unknown := none
	if id, ok := t.ids[m.UnkToken]; ok && m.UnkToken != "" {
		unknown = id
	}
	if len(m.Merges) == 0 && t.needsMerges() {
		return nil, errors.New("model.merges is missing or empty, so text would be cut into single characters")
	}
	p.pre.ignoreMerges = m.IgnoreMerges
	if p.byteLevel {
		b := &bpe{pretokenizer: p.pre, unknown: unknown}
		return t.setBPE(b, m.Merges)
	}
	c := &charBPE{pretokenizer: p.pre, unknown: unknown, fuse: m.FuseUnk, spaces: p.spaces}
	return t.setCharBPE(c, m.Merges)
}

// finishJSON applies the other files of the tokenizer.
func (t *Tokenizer) finishJSON(config *tokenizerConfig, generation []byte, texts []string) error {
	find := func(text tokenText) int32 {
		if id, ok := t.ids[string(text)]; ok && text != "" {
			return id
		}
		return none
	}
	t.bos, t.eos = find(config.BOS), find(config.EOS)
	if t.bos == none && len(t.before) > 0 {
		t.bos = t.before[0]
	}
	// Only these classes rebuild the post-processor from their flags.
	if strings.HasPrefix(config.Class, "Llama") || strings.HasPrefix(config.Class, "Gemma") {
		t.before = byFlag(t.before, config.AddBOS, t.bos)
		t.after = byFlag(t.after, config.AddEOS, t.eos)
	}
	for _, id := range slices.Concat(t.before, t.after, t.between) {
		if !t.valid(id) {
			return fmt.Errorf("post_processor: puts the id %d around a text, and there are %d tokens", id, len(t.texts))
		}
	}
	ends := t.vocabulary.endsByText()
	if t.eos != none && !t.keepsGoing(t.eos) {
		ends[t.eos] = true
	}
	if err := addGenerationEnds(ends, generation, len(t.texts)); err != nil {
		return err
	}
	t.stops = ends
	return t.finish(texts)
}
