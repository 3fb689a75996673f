package hf

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
)

// pooling is how an embedder makes one vector of a text's hidden states, by its value of GGUF's key
// pooling_type. In a folder the files of sentence-transformers say it.
type pooling struct {
	kind      uint32        // 0: none
	separator *uint32       // the token behind the first of two texts, where files name it
	dense     []denseModule // behind the pooling
}

// The values of pooling_type.
const (
	poolMean  = 1
	poolFirst = 2
	poolLast  = 3
	poolRank  = 4
)

// modulesName lists the stages of a sentence-transformers model.
const modulesName = "modules.json"

// readPooling reads the stages behind the model, where the folder has them. It refuses stages that are
// not computed. The pooling is to be closed, with an error too.
func readPooling(dir string) (pooling, error) {
	text, err := read(dir, modulesName, configBytesMax)
	if err != nil || text == nil {
		return pooling{}, err
	}
	path := filepath.Join(dir, modulesName)
	var modules []struct{ Type, Path string }
	if err := json.Unmarshal(text, &modules); err != nil {
		return pooling{}, fmt.Errorf("%s: is no list of modules: %w", path, err)
	}
	p, normalized := pooling{}, false
	for i, m := range modules {
		kind := m.Type[strings.LastIndex(m.Type, ".")+1:]
		if !filepath.IsLocal(m.Path) && m.Path != "" {
			return p, fmt.Errorf("%s: path: is %.60q; needed is a folder in this one", path, m.Path)
		}
		switch {
		case i == 0 && kind == "Transformer" && m.Path == "":
		case kind == "Normalize":
			normalized = true
		case kind == "Pooling" && p.kind == 0:
			if p, err = readPoolingModes(filepath.Join(dir, m.Path)); err != nil {
				return p, err
			}
		case kind == "Dense" && p.kind != 0 && len(p.dense) < denseMost && !normalized:
			module, err := readDense(filepath.Join(dir, m.Path))
			if err != nil {
				return p, err
			}
			p.dense = append(p.dense, module)
		default:
			return p, fmt.Errorf("%s: module %d is %.60q at %.60q; supported are Transformer, one Pooling, up to %d Dense and Normalize, in this order", path, i, m.Type, m.Path, denseMost)
		}
	}
	return p, nil
}

// readModule reads the config.json of a module.
func readModule(dir string) (*config, error) {
	text, err := read(dir, configName, configBytesMax)
	path := filepath.Join(dir, configName)
	if err == nil && text == nil {
		err = fmt.Errorf("%s: is missing", path)
	}
	if err != nil {
		return nil, err
	}
	return parseConfig(path, text)
}

// readPoolingModes reads a Pooling module: one mode is on.
func readPoolingModes(dir string) (pooling, error) {
	c, err := readModule(dir)
	if err != nil {
		return pooling{}, err
	}
	c.ignore("word_embedding_dimension", "embedding_dimension")
	kinds := map[string]uint32{"mean": poolMean, "mean_tokens": poolMean, "cls": poolFirst, "cls_token": poolFirst, "lasttoken": poolLast}
	p := pooling{}
	if mode := c.text("pooling_mode", ""); mode != "" {
		if p.kind = kinds[mode]; p.kind == 0 {
			c.fail("pooling_mode", "is %.60q; supported: mean, cls, lasttoken", mode)
		}
	}
	for key := range c.values {
		mode, is := strings.CutPrefix(key, "pooling_mode_")
		if !is || !c.flag(key, false) {
			continue
		}
		if kind := kinds[mode]; kind == 0 || p.kind != 0 && p.kind != kind {
			c.fail(key, "is true; supported is one of mean_tokens, cls_token and lasttoken alone")
		} else {
			p.kind = kind
		}
	}
	c.only("include_prompt", true)
	if p.kind == 0 {
		c.fail("pooling_mode", "is missing, and no mode is true")
	}
	c.checkAllRead()
	return p, *c.err
}

// pool decides how d's vectors are pooled: as the files of the folder say. An encoder without them takes
// the mean, as sentence-transformers does.
func (d *description) pool(c *config, p pooling) {
	switch {
	case d.pooling.kind == poolRank: // a head makes a score of the hidden state
		if d.pooling.separator = p.separator; len(p.dense) > 0 {
			c.fail("architectures", "name a ranker, and modules.json a Dense module; only one of the two is supported")
		}
	case p.kind != 0 && d.all == nil && c.has("auto_map"):
		c.fail("auto_map", "names code of the model's own, which may look both ways in an embedder; only embedders without such code are supported")
	case p.kind != 0:
		d.pooling = p
	case d.all != nil || d.bothWays:
		d.pooling.kind = poolMean
	}
}

func (p *pooling) set(to *gguf.Draft, arch string) {
	if p.kind != 0 {
		to.Set(arch+".pooling_type", p.kind)
	}
	for i, m := range p.dense {
		to.Set(fmt.Sprintf("%s.%s_feat_in", arch, denseName(i)), uint32(m.in))
		to.Set(fmt.Sprintf("%s.%s_feat_out", arch, denseName(i)), uint32(m.out))
	}
	if p.kind == poolRank && p.separator != nil {
		to.Set("tokenizer.ggml.seperator_token_id", *p.separator) // as the key's makers spell it
	}
}
