package gguf

import "slices"

// tokenRows are the tensors with a row for each token.
var tokenRows = []string{"token_embd.weight", "per_layer_token_embd.weight", "output.weight", "output.bias"}

// WithoutPadding returns f without the rows that belong to no token. Trainers add
// them to round a vocabulary up, and llama.cpp refuses a file that has them. They are
// never sampled, so no answer changes. The result must not be used after f is closed.
func (f *File) WithoutPadding() (*File, error) {
	tokens := f.Count("tokenizer.ggml.tokens")
	embedding, ok := f.Tensor(tokenRows[0])
	if !ok || tokens == 0 || len(embedding.Dims) != 2 || embedding.Dims[1] <= tokens {
		return f, nil
	}
	rows := embedding.Dims[1]
	d := NewDraft(f.name)
	d.Copy(f)
	arch, _, err := f.String("general.architecture")
	if err != nil {
		return nil, err
	}
	if _, said := f.values[arch+".vocab_size"]; said {
		d.Set(arch+".vocab_size", uint32(tokens))
	}
	for _, t := range f.Tensors {
		if last := len(t.Dims) - 1; slices.Contains(tokenRows, t.Name) && t.Dims[last] == rows {
			t = firstRows(t, tokens)
		}
		d.Add(t)
	}
	return d.File(f.Digest()+" without padding", f.mapped)
}

// firstRows is t with n of its rows.
func firstRows(t Tensor, n int) Tensor {
	last := len(t.Dims) - 1
	before := t.Dims[last]
	t.Dims = slices.Clone(t.Dims)
	t.Dims[last] = n
	cut := func(whole []byte) []byte { return whole[:len(whole)/before*n] }
	if whole := t.Make; whole != nil {
		t.Make = func() []byte { return cut(whole()) }
	} else {
		t.Data = cut(t.Data)
	}
	return t
}
