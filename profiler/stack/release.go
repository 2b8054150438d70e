package stack

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"sync"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/trace"
)

// release is a release of PyTorch with its changes since the previous release.
type release struct {
	// Versions are the library versions that PyPI's wheel of the release requires.
	Versions
	// CuDNNVersions are versions of cuDNN whose rules apply; later ones override earlier ones. Folder cudnn has all
	// rules of [completeRelease], and for other versions only the rules that differ. The last version is the one
	// nearest to the release's own whose heuristics were queried. Nil means the previous release's.
	CuDNNVersions []string
	// CuDNNOf is the only compute capability for which the last version was queried; empty for all.
	CuDNNOf string
	// Why explains the changes.
	Why []string
	// Rules are fields of [trace.Rules], Allocator of [allocator.Rules]. Missing fields are the previous release's.
	Rules, Allocator json.RawMessage
	// Settings are the allocator settings that the release introduced.
	Settings []string
}

// releaseTable has all supported releases, oldest first. A new release is added at the end.
//
//go:embed releases.json
var releaseTable []byte

// decodeRow decodes a part of a table; an empty row changes nothing. It panics on an error, which the tests find.
func decodeRow(row []byte, to any) {
	if row == nil {
		return
	}
	j := json.NewDecoder(bytes.NewReader(row))
	j.DisallowUnknownFields()
	if err := j.Decode(to); err != nil {
		panic("stack: " + err.Error())
	}
}

// completeRelease is the version of cuDNN whose heuristics were queried for every architecture.
const completeRelease = "9.19"

// knownStacks has a stack for each supported release, oldest first.
var knownStacks = sync.OnceValue(func() (all []*Stack) {
	var releases []release
	decodeRow(releaseTable, &releases)
	former := Stack{libraryRules: rulesOf(nil)}
	for i, r := range releases {
		s := former
		if r.CuDNNVersions != nil {
			s.cudnnOf, s.askedFor = r.CuDNNVersions[len(r.CuDNNVersions)-1], r.CuDNNOf
			s.convolutions = convolutionRules(append([]string{completeRelease}, r.CuDNNVersions...)...)
		}
		s.rows = sync.OnceValues(func() (rules trace.Rules, alloc allocator.Rules) {
			for _, each := range releases[:i+1] {
				decodeRow(each.Rules, &rules)
				decodeRow(each.Allocator, &alloc)
			}
			for _, later := range releases[i+1:] {
				alloc.UnknownSettings = append(alloc.UnknownSettings, later.Settings...)
			}
			return rules, alloc
		})
		s.versions, s.rulesOf = r.Versions, r.Torch
		all = append(all, &s)
		former = s
	}
	return all
})
