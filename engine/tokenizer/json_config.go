package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// tokenizerConfig holds the relevant keys of tokenizer_config.json.
type tokenizerConfig struct {
	Class  string    `json:"tokenizer_class"`
	BOS    tokenText `json:"bos_token"`
	EOS    tokenText `json:"eos_token"`
	AddBOS *bool     `json:"add_bos_token"`
	AddEOS *bool     `json:"add_eos_token"`
	Pad    tokenText `json:"pad_token"`
	// Special and Added hold tokens that may be missing in tokenizer.json or not
	// be special there.
	Special []tokenText           `json:"additional_special_tokens"`
	Added   map[string]addedToken `json:"added_tokens_decoder"` // by id
}

// addTokens adds the tokens of tokenizer_config.json. A token is special if either
// file says so.
func (f *jsonFile) addTokens(added map[string]addedToken) error {
	known := make(map[string]int, len(f.AddedTokens))
	taken := make(map[int32]bool, len(f.AddedTokens))
	for i, a := range f.AddedTokens {
		known[a.Content], taken[a.ID] = i, true
	}
	missing := map[string]int32{} // and the id in the vocab, if it is there
	for _, a := range added {
		if _, ok := known[a.Content]; !ok {
			missing[a.Content] = none
		}
	}
	for _, e := range f.Model.Vocab {
		if len(missing) == 0 {
			break
		}
		if taken[e.id] = true; missing[e.text] == none {
			missing[e.text] = e.id
		}
	}
	for key, a := range added {
		if i, ok := known[a.Content]; ok {
			f.AddedTokens[i].Special = f.AddedTokens[i].Special || a.Special
			continue
		}
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %.60q is no id", key)
		}
		a.ID = int32(id)
		if of := missing[a.Content]; of != none {
			a.ID = of
		} else if taken[a.ID] {
			return fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %.60q has the id %d of another token of tokenizer.json", a.Content, a.ID)
		}
		f.AddedTokens = append(f.AddedTokens, a)
	}
	return nil
}

// controlNamed makes an added token a control token if tokenizer_config.json gives
// it a role, independent of tokenizer.json. A normal token with a role, such as "!"
// for padding, stays text.
func (v *vocabulary) controlNamed(config *tokenizerConfig) {
	for _, text := range append([]tokenText{config.BOS, config.EOS, config.Pad}, config.Special...) {
		if id, ok := v.ids[string(text)]; ok && v.kinds[id] == kindUser {
			v.kinds[id] = kindControl
		}
	}
}

// tokenText is a token's text: a string, or the content of an object.
type tokenText string

func (t *tokenText) UnmarshalJSON(b []byte) error {
	var object struct{ Content string }
	if len(b) > 0 && b[0] == '{' {
		err := json.Unmarshal(b, &object)
		*t = tokenText(object.Content)
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// byFlag returns ids with or without id, if flag is set.
func byFlag(ids []int32, flag *bool, id int32) []int32 {
	switch {
	case flag == nil:
	case !*flag:
		return nil
	case len(ids) == 0 && id != none:
		return []int32{id}
	}
	return ids
}

// addGenerationEnds reads eos_token_id, one number or a list.
func addGenerationEnds(ends map[int32]bool, generation []byte, tokens int) error {
	if generation == nil {
		return nil
	}
	var g struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := json.Unmarshal(generation, &g); err != nil {
		return fmt.Errorf("generation_config.json: %w", err)
	}
	var ids []int32
	switch raw := bytes.TrimSpace(g.EOS); {
	case len(raw) == 0 || string(raw) == "null":
		return nil
	case raw[0] == '[':
		if err := json.Unmarshal(raw, &ids); err != nil {
			return fmt.Errorf("generation_config.json: eos_token_id: %w", err)
		}
	default:
		ids = make([]int32, 1)
		if err := json.Unmarshal(raw, &ids[0]); err != nil {
			return fmt.Errorf("generation_config.json: eos_token_id: %w", err)
		}
	}
	for _, id := range ids {
		if id < 0 || int(id) >= tokens {
			return fmt.Errorf("generation_config.json: eos_token_id: %d is not one of the %d tokens", id, tokens)
		}
		ends[id] = true
	}
	return nil
}

// namedToken is a token as a pair of its text and its id.
type namedToken struct{ id int32 }

func (n *namedToken) UnmarshalJSON(b []byte) error {
	var text string
	return json.Unmarshal(b, &[]any{&text, &n.id})
}
