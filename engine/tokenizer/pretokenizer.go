package tokenizer

// pretokenizer says how text is cut before merging.
type pretokenizer struct {
	splitters    []splitter // each cuts the pieces of the previous one
	ignoreMerges bool       // a piece that is a token needs no merging
	addBOS       bool       // unless the file says otherwise
	nfc          bool       // text is normalised to NFC first
}

var (
	likeGPT2    = pretokenizer{splitters: []splitter{splitGPT2}}
	likeLlama3  = pretokenizer{splitters: []splitter{splitLlama3}, ignoreMerges: true, addBOS: true}
	likeGLM4    = pretokenizer{splitters: []splitter{splitLlama3}, ignoreMerges: true}
	likeDBRX    = pretokenizer{splitters: []splitter{splitLlama3}}
	likeQwen2   = pretokenizer{splitters: []splitter{splitQwen2}, nfc: true}
	likeHunyuan = pretokenizer{splitters: []splitter{splitQwen2}}
	likeDigits  = pretokenizer{splitters: []splitter{splitDigit, splitGPT2}}
	likeGPT4o   = pretokenizer{splitters: []splitter{splitGPT4o}, ignoreMerges: true}
	likeV3      = pretokenizer{splitters: []splitter{splitDigits3, splitCJK3, splitDeepSeek3}}
	likeBloom   = pretokenizer{splitters: []splitter{splitBloom}}
)

// pretokenizers maps the names of tokenizer.ggml.pre. A new one needs a line here,
// and a splitter if its pattern is new. If the converter's pattern only
// approximates the model's, the model's is used.
var pretokenizers = map[string]pretokenizer{
	"gpt-2": likeGPT2, "phi-2": likeGPT2, "mpt": likeGPT2, "olmo": likeGPT2, "jais": likeGPT2, "exaone4": likeGPT2,
	"gigachat": likeGPT2, "a.x-4.0": likeGPT2, "mellum": likeGPT2, "modern-bert": likeGPT2, "trillion": likeGPT2,
	"granite-docling": likeGPT2,

	"llama3": likeLlama3, "llama-v3": likeLlama3, "llama-bpe": likeLlama3, "falcon3": likeLlama3,
	"falcon-h1": likeLlama3, "pixtral": likeLlama3, "midm-2.0": likeLlama3, "lfm2": likeLlama3,
	"dbrx": likeDBRX, "smaug-bpe": likeDBRX, "chatglm-bpe": likeDBRX,
	"glm4": likeGLM4, "glm5": likeGLM4,
	"minicpm5": {splitters: []splitter{splitDigits3, splitLlama3Words}, ignoreMerges: true},

	"qwen2": likeQwen2, "deepseek-r1-qwen": likeQwen2,
	"qwen35":    {splitters: []splitter{splitQwen35}, nfc: true},
	"stablelm2": likeHunyuan, "hunyuan": likeHunyuan, "megrez": likeHunyuan, "grok-2": likeHunyuan,
	"bailingmoe": likeHunyuan, "bailingmoe2": likeHunyuan, "llada-moe": likeHunyuan,
	"solar-open": likeHunyuan,
	"laguna":     {splitters: []splitter{splitNewlines, splitQwen2}},
	"seed-coder": {splitters: []splitter{splitSeed}},

	"starcoder": likeDigits, "refact": likeDigits, "command-r": likeDigits, "smollm": likeDigits,
	"codeshell": likeDigits, "mellum2": likeDigits, "exaone": likeDigits, "minerva-7b": likeDigits,

	"gpt-4o": likeGPT4o, "llama4": likeGPT4o, "kanana2": likeGPT4o, "talkie": likeGPT4o, "minimax-m2": likeGPT4o,
	"tekken": {splitters: []splitter{splitTekken}, ignoreMerges: true, addBOS: true},

	"deepseek-llm":   {splitters: []splitter{splitEachNewline, splitDSLetters, splitDSMarksVisible, splitTrailing, splitCJKVisible, splitNumber}},
	"deepseek-coder": {splitters: []splitter{splitEachNewline, splitSpaceLetters, splitSpaceMarks, splitCJK, splitDigit}},
	"deepseek-v3":    likeV3, "hunyuan-dense": likeV3, "joyai-llm": likeV3, "hy_v4": likeV3,
	"kimi-k2": {splitters: []splitter{splitKimi}},

	"falcon": {splitters: []splitter{splitFalconMarks, splitGPT2, splitThreeDigits}},
	"bloom":  likeBloom, "poro-chat": likeBloom, "gpt3-finnish": likeBloom,
	"viking": {splitters: []splitter{splitBloom, splitDigit}},

	"default": {splitters: []splitter{splitPunctuation, splitGPT2, splitNumber, splitThreeDigits}},
}

// patterns maps the regular expressions of tokenizer.json, compared as text, to
// splitters.
var patterns = map[string]splitter{
	gpt2Pattern: splitGPT2,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:                                                                                                        splitLlama3,
	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`:                                                                                                              splitLlama3,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:                                                                                                             splitQwen2,
	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`:                                                                                                                   splitQwen2,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:                                                                                                 splitQwen35,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`:                                                                                                             splitSeed,
	`[^\r\n\p{L}\p{N}]?` + casedU + `*` + casedL + `+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?` + casedU + `+` + casedL + `*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`: splitGPT4o,
	`[^\r\n\p{L}\p{N}]?` + casedU + `*` + casedL + `+|[^\r\n\p{L}\p{N}]?` + casedU + `+` + casedL + `*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`:                                                                splitTekken,

	`\p{N}`: splitDigit, `\p{N}+`: splitNumber, `\p{N}{1,3}`: splitDigits3, threeDigits: splitThreeDigits,
	"[\r\n]": splitEachNewline, `[\r\n]`: splitEachNewline, `\s+$`: splitTrailing,
	`\s?[` + deepseekLetters + `]+`: splitDSLetters, "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+": splitDSMarks,
	`\s?\p{L}+`: splitSpaceLetters, `\s?\p{P}+`: splitSpaceMarks,
	"[一-龥ࠀ-一가-\ud7ff]+": splitCJK, "[一-龥\u3040-ゟ゠-ヿ]+": splitCJK3,
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+":       splitDeepSeek3,
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+": splitDeepSeek3,
	` ?[^(\s|.,!?…。，、।۔،)]+`: splitBloom,
	`[^\n]+|[\n]+`:           splitNewlines,
}

const (
	gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	threeDigits = `[0-9][0-9][0-9]`
	casedU      = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	casedL      = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
)
