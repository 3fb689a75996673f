package tokenizer

import (
	"fmt"
	"unicode"
)

// pipeline reads the components around the model. It refuses unknown ones by name,
// because a wrong cut gives fluent nonsense.
func (f *jsonFile) pipeline() (*pipeline, error) {
	p := &pipeline{}
	if f.Model.Type == typeUnigram {
		p.unigram = &unigramParts{}
	}
	for _, stage := range []struct {
		name string
		part *component
		read func(*component) error
	}{
		{"normalizer", f.Normalizer, p.normalizer}, {"pre_tokenizer", f.PreTokenizer, p.preTokenizer},
		{"post_processor", f.PostProcessor, p.postProcessor}, {"decoder", f.Decoder, p.decoder},
	} {
		for _, c := range stage.part.flat() {
			if err := stage.read(&c); err != nil {
				return nil, fmt.Errorf("%s: %w", stage.name, err)
			}
		}
	}
	if is := f.Model.Type == typeWordPiece; is != p.words || is != p.normalized || is && (p.byteLevel || p.spaces || p.pre.nfc || p.prefix != prefix{}) {
		return nil, fmt.Errorf("pre_tokenizer: BertPreTokenizer and BertNormalizer are supported with a model of type %s alone, and it with nothing else", typeWordPiece)
	}
	if !p.byteLevel && !p.spaces && !p.words {
		return nil, fmt.Errorf("pre_tokenizer: neither bytes nor spaces are encoded (ByteLevel or Metaspace), which is not supported")
	}
	return p, nil
}

func unsupported(c *component) error { return fmt.Errorf("component %s is not supported", c.Type) }

func (p *pipeline) normalizer(c *component) error {
	if p.unigram != nil {
		if ok, err := p.unigram.normalizer(c); ok || err != nil {
			return err
		}
		return unsupported(c)
	}
	switch {
	case c.Type == "NFC":
		p.pre.nfc = true
	case c.Type == "BertNormalizer":
		p.lowercase = isTrue(c.Lowercase)
		if !isTrue(c.CleanText) || !isTrue(c.Ideographs) || c.StripAccents != nil && *c.StripAccents != p.lowercase {
			return fmt.Errorf("component BertNormalizer is supported with clean_text and handle_chinese_chars true, and strip_accents as lowercase or null")
		}
		p.normalized = true
	case c.Type == "Prepend" && c.Prepend == space:
		p.prefix = prefix{everywhere: true}
	case c.Type == "Replace" && c.Pattern.String != nil && *c.Pattern.String == " " && c.Content == space:
		p.spaces = true
	default:
		if c.Type == "Replace" || c.Type == "Prepend" {
			return fmt.Errorf("component %s of anything but spaces by %s is not supported", c.Type, space)
		}
		return unsupported(c)
	}
	return nil
}

func (p *pipeline) preTokenizer(c *component) error {
	add := func(s ...splitter) { p.pre.splitters = append(p.pre.splitters, s...) }
	if p.byteLevel {
		return p.afterBytes(c)
	}
	if c.Type == "WhitespaceSplit" && p.unigram != nil {
		p.unigram.words = true
		return nil
	}
	switch c.Type {
	case "BertPreTokenizer":
		p.words = true
	case "ByteLevel":
		p.byteLevel = true
		if isTrue(c.AddPrefixSpace) {
			p.prefix = prefix{everywhere: true, unlessSpace: true}
		}
		if isTrue(c.UseRegex) {
			add(splitGPT2)
		}
	case "Digits":
		if c.IndividualDigits {
			add(splitDigit)
		} else {
			add(splitNumber)
		}
	case "Punctuation":
		return p.punctuation(c)
	case "Metaspace":
		return p.metaspace(c)
	case "Split":
		return p.split(c)
	default:
		return unsupported(c)
	}
	return nil
}

// afterBytes reads a component after ByteLevel, which sees a character of GPT-2's
// alphabet for every byte. Falcon has one.
func (p *pipeline) afterBytes(c *component) error {
	switch {
	case c.Type == "Digits" && !c.IndividualDigits:
		p.pre.splitters = append(p.pre.splitters, splitByteDigits)
	case c.Type == "Split" && c.Pattern.Regex != nil && *c.Pattern.Regex == threeDigits:
		return p.split(c)
	default:
		return fmt.Errorf("component %s after ByteLevel is not supported", c.Type)
	}
	return nil
}

// splitByteDigits cuts text into runs of bytes whose characters in the alphabet are
// numbers (including ² ³ ¹ ¼ ½ ¾) and the runs between them.
func splitByteDigits(text string) int {
	is := func(b byte) bool { return unicode.IsNumber(byteAlphabet[b]) }
	n := 1
	for n < len(text) && is(text[n]) == is(text[0]) {
		n++
	}
	return n
}

func (p *pipeline) punctuation(c *component) error {
	is := func(r rune) bool { return unicode.IsPunct(r) || r < 0x80 && unicode.IsSymbol(r) }
	switch c.Behavior {
	case "Contiguous":
		p.pre.splitters = append(p.pre.splitters, splitRunes(is))
	case "Isolated", "":
		p.pre.splitters = append(p.pre.splitters, isolate(func(text string) int {
			for i, r := range text {
				if i > 0 || !is(r) {
					return i
				}
			}
			return len(text)
		}))
	default:
		return fmt.Errorf("component Punctuation with the behavior %.60q is not supported", c.Behavior)
	}
	return nil
}

func (p *pipeline) metaspace(c *component) error {
	if c.Replacement != space {
		return fmt.Errorf("component Metaspace with the replacement %.60q is not supported", c.Replacement)
	}
	p.spaces = true
	scheme := c.PrependScheme
	if scheme == "" { // older files lack the key
		scheme = "always"
		if !isTrue(c.AddPrefixSpace) {
			scheme = "never"
		}
	}
	switch scheme {
	case "always":
		p.prefix = prefix{everywhere: true, unlessSpace: true}
	case "first":
		p.prefix = prefix{first: true, unlessSpace: true}
	case "never":
	default:
		return fmt.Errorf("component Metaspace with the prepend_scheme %.60q is not supported", scheme)
	}
	if isTrue(c.Split) {
		p.pre.splitters = append(p.pre.splitters, splitBeforeSpaces)
	}
	return nil
}

func (p *pipeline) split(c *component) error {
	if c.Pattern.String != nil {
		// No piece has a space, because spaces are U+2581 already.
		if *c.Pattern.String == " " && p.spaces {
			return nil
		}
		return fmt.Errorf("component Split at the text %.60q is not supported", *c.Pattern.String)
	}
	if c.Pattern.Regex == nil {
		return fmt.Errorf("component Split has no pattern")
	}
	s, ok := patterns[*c.Pattern.Regex]
	if !ok {
		return fmt.Errorf("component Split by the pattern %.600q is not supported", *c.Pattern.Regex)
	}
	// Removing the gaps equals isolating the matches if the pattern leaves no gaps.
	if c.Behavior == "Isolated" && !c.Invert || c.Behavior == "Removed" && c.Invert && coversAll[*c.Pattern.Regex] {
		p.pre.splitters = append(p.pre.splitters, s)
		return nil
	}
	return fmt.Errorf("component Split with the behavior %.60q (invert %v) is not supported", c.Behavior, c.Invert)
}

// coversAll lists the patterns that leave no gaps: they end in \s+ and have an
// alternative for everything else.
var coversAll = func() map[string]bool {
	all := map[string]bool{}
	for text := range patterns {
		if len(text) > 40 && text[len(text)-3:] == `\s+` {
			all[text] = text[0] != '[' || text[1] == '^'
		}
	}
	return all
}()

func (p *pipeline) postProcessor(c *component) error {
	switch c.Type {
	case "ByteLevel": // changes only offsets, which we do not report
		return nil
	case "BertProcessing", "RobertaProcessing":
		p.before, p.after = []int32{c.CLS.id}, []int32{c.SEP.id}
		if p.between = p.after; c.Type == "RobertaProcessing" {
			p.between = []int32{c.SEP.id, c.SEP.id}
		}
		return nil
	case "TemplateProcessing":
	default:
		return unsupported(c)
	}
	single, err := c.template(c.Single, 1)
	if err != nil {
		return err
	}
	p.before, p.after, p.between = single[0], single[1], nil
	if pair, err := c.template(c.Pair, 2); err != nil {
		return err
	} else if len(c.Pair) > 0 {
		p.between = append([]int32{}, pair[1]...)
	}
	return nil
}

// template is the ids before each text of a template, and behind the last one.
func (c *component) template(pieces []piece, texts int) ([][]int32, error) {
	ids, at := make([][]int32, texts+1), 0
	for _, piece := range pieces {
		switch {
		case piece.Sequence != nil && at == texts:
			return nil, fmt.Errorf("component TemplateProcessing has more than %d texts in a template of as many", texts)
		case piece.Sequence != nil:
			at++
		case piece.SpecialToken != nil:
			token, ok := c.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				return nil, fmt.Errorf("component TemplateProcessing has no ids for %.60q", piece.SpecialToken.ID)
			}
			ids[at] = append(ids[at], token.IDs...)
		}
	}
	return ids, nil
}

func (p *pipeline) decoder(c *component) error {
	switch c.Type {
	case "ByteLevel", "ByteFallback", "Fuse", "Replace", "WordPiece":
	case "Strip":
		p.strip = p.strip || c.Content == " " && c.Start == 1
	case "Metaspace":
		p.strip = p.strip || p.prefix.everywhere || p.prefix.first
	default:
		return unsupported(c)
	}
	return nil
}
