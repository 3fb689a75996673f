package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// The formats that are enforced, as regular expressions for the whole string.
// What they allow is within the format. Of international host names some are left out (see
// grammar.Builder.InternationalLabel), and of mail addresses all at such hosts.
var formats = map[string]string{
	"date":                  dateFormat,
	"time":                  timeFormat,
	"date-time":             "(?:" + dateFormat + ")[Tt](?:" + timeFormat + ")",
	"duration":              `P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:T` + durationTime + `)?|T` + durationTime + `)`,
	"email":                 emailFormat(hostFormat),
	"hostname":              hostFormat,
	"ipv4":                  ipv4Format,
	"ipv6":                  ipv6Format,
	"uuid":                  `[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}`,
	"uri":                   uriFormat,
	"uri-reference":         uriFormat + `|(?:` + authority + `(?:/` + pathChar + `*)*|/(?:` + pathChar + `+(?:/` + pathChar + `*)*)?|(?:` + segmentNoColon + `(?:/` + pathChar + `*)*)?)` + queryFragment,
	"json-pointer":          pointerFormat,
	"relative-json-pointer": `(?:0|[1-9][0-9]*)(?:#|` + pointerFormat + `)`,
}

// emailFormat is the format of mail addresses at hosts of a form.
func emailFormat(host string) string {
	return `(?:[A-Za-z0-9!#$%&'*+/=?^_` + "`" + `{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_` + "`" + `{|}~-]+)*|"(?:[ !#-\[\]-~]|\\[ -~])*")@(?:` + host + `|\[` + ipv4Format + `\]|\[IPv6:` + ipv6Format + `\])`
}

// widest are the formats of which something is left out, with all of it: what is not of the
// format is not of these.
var widest = map[string]string{"hostname": anyHost, "email": emailFormat(anyHost)}

// labelOf is a label of at most so many bytes. One with hyphens in its third and fourth place
// stands for an international one.
func labelOf(bytes int) string {
	return `(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]?[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]{2}[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0,` + strconv.Itoa(bytes-5) + `}[A-Za-z0-9])`
}

var hostFormat = labelOf(63) + `(?:\.` + labelOf(63) + `)*`

// timeFormat has leap seconds, which are the last of a day in UTC, at the
// offsets of whole, half and quarter hours.
var timeFormat = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])` + leapSeconds()

func leapSeconds() string {
	var b strings.Builder
	b.WriteString(`|23:59:60(?:\.[0-9]+)?[Zz]`)
	const day, last = 24 * 60, 24*60 - 1 // in minutes
	for offset := 0; offset < day; offset += 15 {
		for _, at := range []struct {
			sign  byte
			local int
		}{{'+', (last + offset) % day}, {'-', (last - offset + day) % day}} {
			fmt.Fprintf(&b, `|%02d:%02d:60(?:\.[0-9]+)?\%c%02d:%02d`, at.local/60, at.local%60, at.sign, offset/60, offset%60)
		}
	}
	return b.String()
}

const (
	dateFormat = `[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))` +
		`|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29`
	durationTime = `(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)`

	anyLabel = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?` // international ones too, valid or not
	anyHost  = anyLabel + `(?:\.` + anyLabel + `)*`

	octet      = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	ipv4Format = `(?:` + octet + `\.){3}` + octet
	h16        = `[0-9A-Fa-f]{1,4}`
	ls32       = `(?:` + h16 + `:` + h16 + `|` + ipv4Format + `)`
	ipv6Format = `(?:(?:` + h16 + `:){6}` + ls32 +
		`|::(?:` + h16 + `:){5}` + ls32 +
		`|(?:` + h16 + `)?::(?:` + h16 + `:){4}` + ls32 +
		`|(?:(?:` + h16 + `:){0,1}` + h16 + `)?::(?:` + h16 + `:){3}` + ls32 +
		`|(?:(?:` + h16 + `:){0,2}` + h16 + `)?::(?:` + h16 + `:){2}` + ls32 +
		`|(?:(?:` + h16 + `:){0,3}` + h16 + `)?::` + h16 + `:` + ls32 +
		`|(?:(?:` + h16 + `:){0,4}` + h16 + `)?::` + ls32 +
		`|(?:(?:` + h16 + `:){0,5}` + h16 + `)?::` + h16 +
		`|(?:(?:` + h16 + `:){0,6}` + h16 + `)?::)`

	pathChar       = `(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})`
	segmentNoColon = `(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+`
	regName        = `(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*`
	authority      = `//(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?(?:\[(?:` + ipv6Format + `|[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\]|` + regName + `)(?::[0-9]*)?`
	queryFragment  = `(?:\?(?:` + pathChar + `|[/?])*)?(?:#(?:` + pathChar + `|[/?])*)?`
	uriFormat      = `[A-Za-z][A-Za-z0-9+.-]*:(?:` + authority + `(?:/` + pathChar + `*)*|/(?:` + pathChar + `+(?:/` + pathChar + `*)*)?|` + pathChar + `+(?:/` + pathChar + `*)*|)` + queryFragment

	pointerFormat = `(?:/(?:[^/~]|~[01])*)*`
)
