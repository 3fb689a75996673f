package gateway

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file has the two routes of embedders: /v1/embeddings as OpenAI's API has it, and
// /v1/rerank as Jina's and Cohere's have it.

// embeds is what a request for vectors asks for.
type embeds struct {
	dimensions int  // of a vector; 0 means all
	base64     bool // little-endian float32 in place of numbers
	rerank     *rerank
}

// rerank asks how near documents are to a query. The query is the first prompt, and the
// documents are the others; where the model scores them, each prompt is a document with the
// query.
type rerank struct {
	documents []string
	scored    bool
	top       int // how many results
	echo      bool
}

// textsAtOnce is how many texts of one request the engine has at a time, so that a long
// list takes no more of it than a few clients.
const textsAtOnce = 8

// atOnce is how many of a request's prompts are dispatched together.
func (c *call) atOnce(prompts int) int {
	if c.embeds != nil {
		return min(prompts, textsAtOnce)
	}
	return prompts
}

var (
	knownEmbeds = keySet(nil, "model", "user", "service_tier", "input", "encoding_format", "dimensions")
	knownRerank = keySet(nil, "model", "user", "service_tier", "query", "documents", "top_n", "return_documents")
)

// embedOptions are those of every text of both routes.
var embedOptions = wire.Options{N: 1, Embed: true}

func embeddingsCall(body []byte, l *LimitsConfig, m *wire.Model) (*call, *wire.Error) {
	return decodeVectors(body, knownEmbeds, l, m, func(f *fields, c *call) {
		if m.Ranks {
			f.fail("model", "the model %s scores documents and makes no embeddings; use /v1/rerank", m.ID)
		}
		c.prompts = f.prompts("input", l.InputsMax)
		format := f.text("encoding_format")
		if format != "" && format != "float" && format != "base64" {
			f.fail("encoding_format", "encoding_format must be float or base64")
		}
		c.embeds.base64 = format == "base64"
		if c.embeds.dimensions = f.wholeIn("dimensions", 0, 1, math.MaxInt32); m.EmbeddingWidth > 0 && c.embeds.dimensions > m.EmbeddingWidth {
			f.fail("dimensions", "dimensions must be at most %d, the length of this model's vectors", m.EmbeddingWidth)
		}
	})
}

func rerankCall(body []byte, l *LimitsConfig, m *wire.Model) (*call, *wire.Error) {
	return decodeVectors(body, knownRerank, l, m, func(f *fields, c *call) {
		query := f.text("query")
		if query == "" {
			f.fail("query", "query must be a string, and not empty")
		}
		r := &rerank{documents: f.documents(l.InputsMax), echo: f.flag("return_documents")}
		r.top = min(len(r.documents), f.wholeIn("top_n", len(r.documents), 1, math.MaxInt32))
		c.embeds.rerank = r
		if r.scored = m.Ranks; !r.scored {
			c.prompts = append(c.prompts, wire.Request{Text: &query})
		}
		for i := range r.documents {
			p := wire.Request{Text: &r.documents[i]}
			if r.scored {
				p = wire.Request{Text: &query, Document: &r.documents[i]}
			}
			c.prompts = append(c.prompts, p)
		}
	})
}

// decodeVectors reads what both routes share; own reads the rest.
func decodeVectors(body []byte, known map[string]bool, l *LimitsConfig, m *wire.Model, own func(f *fields, c *call)) (*call, *wire.Error) {
	f, err := parseFields(body, l.JSONDepthMax, known)
	if err != nil {
		return nil, err
	}
	c := &call{model: f.text("model"), options: embedOptions, ignored: f.ignored, user: f.text("user"), embeds: &embeds{}}
	if c.model == "" {
		f.fail("model", "model must name the model; GET /v1/models lists what is served")
	}
	if m.Relays {
		f.fail("model", "the server behind this gateway is asked for text alone; serve an embedding model, as its file's key pooling_type says")
	}
	own(f, c)
	for i := range c.prompts {
		p := &c.prompts[i]
		if p.Text != nil && *p.Text == "" || p.Document != nil && *p.Document == "" {
			f.fail("input", "the text at index %d is empty", i)
		}
	}
	c.readTier(f)
	f.refuseUnsupported()
	if f.err != nil {
		return nil, f.err
	}
	return c, c.options.Check(m)
}

// documents reads strings, or objects with a text.
func (f *fields) documents(countMax int) (all []string) {
	const allowed = "documents must be an array of strings, or of objects with a string text, and not empty"
	raw, _ := f.given("documents")
	for i, item := range elements(raw) {
		if isObject(item) {
			item = member(item, "text")
		}
		switch {
		case i == countMax:
			f.fail("documents", "documents may hold at most %d texts", countMax)
			return nil
		case !isString(item):
			f.fail("documents", allowed)
			return nil
		}
		all = append(all, unquote(item))
	}
	if len(all) == 0 {
		f.fail("documents", allowed)
	}
	return all
}

// vectorReply keeps the vectors for one object at the end.
type vectorReply struct {
	x       *exchange
	call    *call
	model   string
	vectors [][]float32 // of each prompt
	held    int         // numbers in vectors
}

func (r *vectorReply) event(_, prompt int, e *wire.Event) {
	if e.Embedding == nil {
		return
	}
	v := e.Embedding
	if d := r.call.embeds.dimensions; d > 0 && d < len(v) {
		v = shortened(v, d)
	}
	r.vectors[prompt] = v
	r.held += len(v)
}

// flush sends nothing yet; it bounds what is kept.
func (r *vectorReply) flush() error {
	if most := r.x.g.cfg.Limits.AnswerBytesMax; 4*r.held > most {
		return failed(faultTooLarge, "an answer may hold "+strconv.Itoa(most)+" bytes of vectors; send fewer texts, or ask for fewer dimensions")
	}
	return nil
}

func (r *vectorReply) finish(u wire.Usage) error {
	var body []byte
	if r.call.embeds.rerank != nil {
		body = r.ranking(u)
	} else {
		body = r.list(u)
	}
	x := r.x
	x.openPlain(len(body))
	x.out.Buf = append(x.out.Buf, body...)
	if err := x.out.Close(); err != nil {
		return err
	}
	x.noteWrite()
	return nil
}

// list is the answer of /v1/embeddings.
func (r *vectorReply) list(u wire.Usage) []byte {
	b := append([]byte(nil), `{"object":"list","data":[`...)
	for i, v := range r.vectors {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"object":"embedding","index":`...)
		b = append(strconv.AppendInt(b, int64(i), 10), `,"embedding":`...)
		b = append(appendVector(b, v, r.call.embeds.base64), '}')
	}
	b = appendString(append(b, `],"model":`...), r.model)
	b = append(b, `,"usage":{"prompt_tokens":`...)
	b = append(strconv.AppendInt(b, int64(u.Prompt), 10), `,"total_tokens":`...)
	return append(strconv.AppendInt(b, int64(u.Prompt), 10), "}}"...)
}

// scores are those of the model, or the cosines of the documents' vectors with the query's.
func (r *vectorReply) scores() []float64 {
	asked := r.call.embeds.rerank
	scores := make([]float64, len(asked.documents))
	for i := range scores {
		if asked.scored {
			scores[i] = float64(r.vectors[i][0])
		} else {
			scores[i] = dot(r.vectors[0], r.vectors[i+1])
		}
	}
	return scores
}

// ranking is the answer of /v1/rerank: the documents with the highest scores, the highest
// first.
func (r *vectorReply) ranking(u wire.Usage) []byte {
	asked := r.call.embeds.rerank
	scores, order := r.scores(), make([]int, len(asked.documents))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	b := appendString(append([]byte(nil), `{"id":`...), "rerank-"+r.x.record.ID)
	b = append(appendString(append(b, `,"model":`...), r.model), `,"results":[`...)
	for i, at := range order[:asked.top] {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendInt(append(b, `{"index":`...), int64(at), 10), `,"relevance_score":`...)
		b = strconv.AppendFloat(b, scores[at], 'g', 8, 64)
		if asked.echo {
			b = append(appendString(append(b, `,"document":{"text":`...), asked.documents[at]), '}')
		}
		b = append(b, '}')
	}
	b = append(b, `],"usage":{"prompt_tokens":`...)
	b = append(strconv.AppendInt(b, int64(u.Prompt), 10), `,"total_tokens":`...)
	return append(strconv.AppendInt(b, int64(u.Prompt), 10), "}}"...)
}

// appendVector appends a vector as JSON: numbers, or their bytes in base64.
func appendVector(b []byte, v []float32, encoded bool) []byte {
	if encoded {
		raw := make([]byte, 0, 4*len(v))
		for _, x := range v {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), raw), '"')
	}
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return append(b, ']')
}

// shortened is the first d numbers of a vector, with the length 1 (Matryoshka
// representations: Kusupati et al., NeurIPS 2022).
func shortened(v []float32, d int) []float32 {
	v = slices.Clone(v[:d])
	length := math.Sqrt(dot(v, v))
	for i, x := range v {
		if length > 0 {
			v[i] = float32(float64(x) / length)
		}
	}
	return v
}

// dot is the cosine of two vectors of length 1.
func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}
