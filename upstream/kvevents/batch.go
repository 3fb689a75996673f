package kvevents

// event is one event as it came. Its values are read when it is applied.
type event struct {
	kind   string // the event's name
	hashes packed
	parent packed
	tokens packed
	size   packed
	medium packed
	extras packed
	salt   packed
	group  packed
	spec   packed
}

// Names of events.
const (
	nameStored  = "BlockStored"
	nameRemoved = "BlockRemoved"
	nameCleared = "AllBlocksCleared"
)

// orderStored and orderRemoved are the members of events that are written as lists,
// after their name.
var (
	orderStored  = []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"}
	orderRemoved = []string{"block_hashes", "medium", "group_idx"}
)

// member is where a member of an event goes, nil for one that is not needed.
func (e *event) member(name string) *packed {
	switch name {
	case "block_hashes":
		return &e.hashes
	case "parent_block_hash":
		return &e.parent
	case "token_ids":
		return &e.tokens
	case "block_size":
		return &e.size
	case "medium":
		return &e.medium
	case "extra_keys":
		return &e.extras
	case "cache_salt":
		return &e.salt
	case "group_idx":
		return &e.group
	case "kv_cache_spec_kind":
		return &e.spec
	}
	return nil
}

// eachEvent reads a batch: a list of its time, its events and a rank, or a map of the
// same. It calls do for each event until that returns false.
func eachEvent(payload []byte, do func(*event) bool) error {
	p := packed{rest: payload}
	var events packed
	switch k, n := p.head(); {
	case k == kindList && n >= 2:
		p.skip()
		events = p.value()
	case k == kindMap:
		for ; n > 0 && !p.bad; n-- {
			name, ok := p.text()
			value := p.value()
			if ok && string(name) == "events" {
				events = value
			}
		}
	default:
		return errPack
	}
	n, ok := events.list()
	if p.bad || !ok {
		return errPack
	}
	for ; n > 0; n-- {
		one := events.value()
		var e event
		if events.bad || !e.read(&one) {
			return errPack
		}
		if !do(&e) {
			return nil
		}
	}
	return nil
}

// read reads an event: a map with its name as "type", or a list that begins with it.
func (e *event) read(p *packed) bool {
	switch k, n := p.head(); k {
	case kindMap:
		for ; n > 0 && !p.bad; n-- {
			name, ok := p.text()
			value := p.value()
			if !ok {
				return false
			}
			if string(name) == "type" {
				kind, ok := value.text()
				if !ok {
					return false
				}
				e.kind = string(kind)
			} else if to := e.member(string(name)); to != nil {
				*to = value
			}
		}
	case kindList:
		kind, ok := p.text()
		if !ok {
			return false
		}
		e.kind = string(kind)
		order := orderStored
		if e.kind == nameRemoved {
			order = orderRemoved
		}
		for i := 1; i < int(n) && !p.bad; i++ {
			value := p.value()
			if i <= len(order) {
				if to := e.member(order[i-1]); to != nil {
					*to = value
				}
			}
		}
	default:
		return false
	}
	return !p.bad && e.kind != ""
}

// extra is what beside its tokens tells a block from others: a salt, or whatever else
// the server mixes in. It is "" for nothing; salted says that it is just a salt.
func extra(p *packed) (key string, salted bool) {
	all := p.rest
	if len(all) == 0 {
		return "", false
	}
	k, n := p.head()
	switch {
	case k == kindNil, k == kindList && n == 0:
		return "", false
	case k == kindList && n == 1:
		if text, ok := p.text(); ok {
			return string(text), true
		}
	case k == kindText:
		return string(p.take(n)), !p.bad
	}
	return "\x00" + string(all), false
}
