package bisect

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// releaseParser matches one number or word of a release: "1.10.0rc1" has 1, 10, 0, rc and 1.
var releaseParser = regexp.MustCompile(`\d+|[a-z]+`)

// preReleaseRanks order the words of a release (PEP 440). Words of pre-releases rank below 0.
var preReleaseRanks = map[string]int{
	"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "rc": -1, "c": -1, "pre": -1, "post": 1,
}

// CompareReleases orders releases as PEP 440 does, without local versions ("+cu130") and epochs.
func CompareReleases(a, b string) int {
	x, y := releaseParts(a), releaseParts(b)
	for i := range max(len(x), len(y)) {
		p, q := 0, 0
		if i < len(x) {
			p = x[i]
		}
		if i < len(y) {
			q = y[i]
		}
		if c := cmp.Compare(p, q); c != 0 {
			return c
		}
	}
	return 0
}

// maxSegments is the number of numeric segments before a release's word; missing ones are 0: 1.2rc1 is 1.2.0.0.0.0rc1.
const maxSegments = 6

// releaseParts returns a release as numbers. Of two releases, the later has the larger first number that differs.
func releaseParts(release string) (all []int) {
	release, _, _ = strings.Cut(strings.ToLower(release), "+")
	for _, part := range releaseParser.FindAllString(release, -1) {
		n, err := strconv.Atoi(part)
		if err == nil {
			all = append(all, n)
			continue
		}
		for len(all) < maxSegments {
			all = append(all, 0)
		}
		all = append(all, preReleaseRanks[part])
	}
	return all
}
