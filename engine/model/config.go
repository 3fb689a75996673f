package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// Config describes a model: what Forward must compute and at which sizes.
type Config struct {
	Architecture string // as the file names it
	Name         string // general.name, or the architecture

	ContextTokens int // of the training
	Vocab         int // rows of the embedding, and logits of a token
	Embed         int // width of the residual stream
	Heads         int // of queries
	KVHeads       int // the most of a layer; Layers has each layer's
	HeadDim       int // where Layers does not say otherwise
	NormEps       float32
	Tied          bool // the output matrix is the embedding
	Layers        []Layer

	CentredNorms   bool   // norms take the mean off first: LayerNorm, where others are RMSNorm
	NoPreNorms     bool   // the halves of a layer read the residual stream as it is
	PostNorms      bool   // the outputs of attention and feed-forward are normed before they are added
	SumNorms       bool   // the residual stream itself is normed after they are added
	Parallel       bool   // attention and feed-forward read the same norm
	FFNormName     string // of the norm before the feed-forward layer
	OutputNormName string
	FusedGateUp    bool // gate's and up's rows are one tensor, in this order
	Ungated        bool // a feed-forward layer is down·activation(up·x)

	QKNorm           QKNorm
	QKNormLast       bool // after the rope, not before
	VNorm            bool // values are normed head by head, without a weight
	Sinks            bool // every head has one more score in its softmax, without a value
	Ropes            []Rope
	GatedAttention   bool // what attention finds is multiplied by the sigmoid of a gate
	AttentionScale   float32
	AttentionSoftCap float32     // 0 means none
	ChunkTokens      int         // of the layers that are Chunked
	Temperature      Temperature // of the layers that are Tempered

	Activation  Activation
	Experts     int // of a mixture; 0 means none
	ExpertsUsed int // of each token
	ExpertFF    int // width of an expert
	SharedFF    int // width of the expert that every token uses; 0 means none
	SharedGated bool
	Router      Router
	// BesideDense: experts have norms of their own, and their outputs are added to
	// those of a dense feed-forward layer.
	BesideDense bool

	Recurrent Recurrent // of the layers that are Recurrent
	Latent    Latent    // of all layers, if its Rank is not 0

	AltUp        AltUp
	PerLayer     int  // width of each layer's own part of a token's embedding; 0 means none
	OutputScales bool // the residual stream is multiplied at the end of each layer

	EmbeddingScale float32 // of the embedding's rows
	ResidualScale  float32 // of each sum that half a layer adds
	LogitScale     float32
	Multipliers    Multipliers
	LogitSoftCap   float32 // 0 means none

	Pooling Pooling // of an embedder; PoolNone of a model that generates
	Encoder Encoder
	Ranker  Ranker // where Pooling is PoolRank

	read []string // tensors that are read already, or belong to no layer that is computed
}

// Layer is what differs from layer to layer.
type Layer struct {
	Recurrent    bool // has a state, beside attention or in its place
	KVHeads      int  // 0 means no attention
	HeadDim      int
	KeysOf       int  // the layer whose keys and values it reads; most store their own
	KeysAsValues bool // values are the keys before norm and rope
	WindowTokens int  // a token sees itself and WindowTokens−1 before it; 0 means all
	Chunked      bool // a token sees those of its own chunk of ChunkTokens
	Rope         int  // index in Ropes, or NoRope
	Tempered     bool // queries are scaled by Temperature

	FF      int  // width of the dense feed-forward layer; 0 means none
	Mixture bool // has experts
}

// mixes reports whether the layer has a half that mixes tokens; feeds, whether it has a
// feed-forward layer.
func (l *Layer) mixes() bool { return l.Recurrent || l.KVHeads > 0 }
func (l *Layer) feeds() bool { return l.FF > 0 || l.Mixture }

// NoRope is the rope of a layer that does not rotate queries and keys.
const NoRope = -1

// QKNorm says what of queries, and of keys, is normed together.
type QKNorm int

const (
	NormNothing  QKNorm = iota
	NormEachHead        // by one weight for all heads
	NormAllHeads        // as one row
	NormPlain           // each head, without a weight
)

// Temperature scales queries by 1 + Scale·ln(1+⌊(position+Ahead)/Tokens⌋).
type Temperature struct {
	Scale  float64
	Tokens int
	Ahead  int
}

// At is the scale of a position's queries.
func (t *Temperature) At(position int) float32 {
	return float32(1 + t.Scale*math.Log1p(float64((position+t.Ahead)/t.Tokens)))
}

// Activation is the function between the feed-forward layer's matrices.
type Activation int

const (
	SiLU        Activation = iota // silu(gate)·up
	GELU                          // gelu(gate)·up, in the tanh form
	ClampedSiLU                   // of gpt-oss, with its limit of 7
	ExactGELU                     // gelu(gate)·up, by the error function
	SquaredReLU                   // max(up, 0)², always Ungated
)

// activationLimit is swiglu_limit of gpt-oss, which its files do not give.
const activationLimit = 7

// kvLayout is the layout of a layer's pools.
func (l *Layer) kvLayout(t kernels.KVType, pageTokens int) kernels.KVLayout {
	return kernels.KVLayout{KVType: t, PageTokens: pageTokens, KVHeads: l.KVHeads, HeadDim: l.HeadDim}
}

// PageBytes is the memory of pageTokens positions over all layers, keys and
// values. It is at least 1, and does not overflow for up to 2^16 positions: a page
// without any costs what is kept of its tokens.
func (c *Config) PageBytes(t kernels.KVType, pageTokens int) int {
	n := 0
	for i := range c.Layers {
		if c.stores(i) {
			l := c.Layers[i].kvLayout(t, pageTokens)
			n += 2 * l.PageBytes()
		}
	}
	return max(n, 4*pageTokens)
}

// stores reports whether layer i has keys and values of its own.
func (c *Config) stores(i int) bool { return c.Layers[i].KVHeads > 0 && c.Layers[i].KeysOf == i }

// KVReadBytes is the bytes of keys and values that attention reads for one token
// that sees contextTokens positions, itself included.
func (c *Config) KVReadBytes(t kernels.KVType, contextTokens int) int {
	n := 0
	for i := range c.Layers {
		l, positions := &c.Layers[i], contextTokens
		switch {
		case l.WindowTokens > 0:
			positions = min(l.WindowTokens, contextTokens)
		case l.Chunked:
			positions = (contextTokens-1)%c.ChunkTokens + 1
		}
		n += positions * 2 * l.KVHeads * t.TokenBytes(l.HeadDim)
	}
	return n
}

// FF is the width of an expert, or of the widest feed-forward layer where there are none.
func (c *Config) FF() int {
	if c.Experts > 0 {
		return c.ExpertFF
	}
	return c.largest().ff
}

// WeightReadBytes is the bytes of f's weights that one token reads, in the file's
// types: of the embedding one row, of the experts those that it uses.
func (c *Config) WeightReadBytes(f *gguf.File) int {
	total, experts := 0, 0
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if !t.Type.Known() || slices.Contains(c.read, t.Name) {
			continue
		}
		n := t.Type.Bytes(t.Elements())
		switch {
		case t.Name == embeddingName && (!c.Tied || c.Pooling != PoolNone), t.Name == perLayerName:
			n = t.Type.Bytes(t.Dims[0])
		case c.Experts > 0 && isExpert(t.Name):
			experts += n
			continue
		}
		total += n
	}
	return total + experts*c.ExpertsUsed/max(1, c.Experts)
}

// architectures has one row for each supported architecture. The function reads
// all keys under its name; a key that it does not read is refused.
var architectures = map[string]func(k *keys, c *Config){
	"llama": readLlama, "granite": readGraniteDense, "smollm3": readSmolLM3,
	"qwen2": readQwen2, "qwen3": readQwen3, "qwen3moe": readQwen3MoE, "qwen2moe": readQwen2MoE, "olmoe": readOLMoE, "granitemoe": readGraniteMoE,
	"gemma2": readGemma2, "gemma3": readGemma3, "gemma3n": readGemma3n, "gemma4": readGemma4,
	"phi3": readPhi3, "gpt-oss": readGPTOSS,

	"olmo2": readOLMo2, "exaone4": readEXAONE4, "glm4": readGLM4, "cohere2": readCohere2,
	"hunyuan-dense": readHunyuanDense, "seed_oss": readSeedOSS, "ernie4_5": readERNIE, "mistral3": readMistral3,

	"ernie4_5-moe": readERNIEMoE, "glm4moe": readGLM4MoE, "minimax-m2": readMiniMaxM2,
	"lfm2": readLFM2, "lfm2moe": readLFM2MoE, "mamba2": readMamba2, "granitehybrid": readGraniteHybrid, "falcon-h1": readFalconH1,
	"nemotron_h": readNemotronH, "nemotron_h_moe": readNemotronH,
	"qwen3next": readQwen3Next, "qwen35": readQwen35, "qwen35moe": readQwen35MoE,

	"deepseek2":   readDeepSeek2,
	"bailingmoe2": readBailingMoE2, "phimoe": readPhiMoE, "llama4": readLlama4,

	"bert": readBERT, "nomic-bert": readNomicBERT, "modern-bert": readModernBERT, "gemma-embedding": readGemmaEmbedding,
}

// Architectures lists the names that ReadConfig knows.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

// ReadConfig reads the description of the model in f, without its weights.
func ReadConfig(f *gguf.File) (Config, error) {
	arch, _, err := f.String("general.architecture")
	if err != nil {
		return Config{}, err
	}
	read, ok := architectures[arch]
	if !ok {
		return Config{}, fmt.Errorf("%s: architecture %s is not supported; supported: %s",
			f.Name(), cmp.Or(f.Text("general.architecture"), `""`), strings.Join(Architectures(), ", "))
	}
	c := Config{Architecture: arch, FFNormName: "ffn_norm", OutputNormName: "output_norm", Router: Router{Normed: true, Scale: 1}, EmbeddingScale: 1, ResidualScale: 1, LogitScale: 1, Multipliers: noMultipliers}
	k := &keys{file: f, prefix: arch + ".", read: map[string]bool{}}
	k.checkWhole()
	k.readTransformer(&c)
	if k.err == nil {
		read(k, &c)
	}
	k.readPooling(&c)
	k.readHarmless(&c)
	k.checkAllRead()
	if k.err != nil {
		return Config{}, k.err
	}
	c.read = k.tensors
	c.Name, _, err = f.String("general.name")
	if c.Name == "" {
		c.Name = arch
	}
	return c, err
}
