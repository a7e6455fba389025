package main

import (
	"maps"
	"math"
	"slices"
)

// results are all samples, by operation and subject, in the order in which they
// were taken.
type results map[operation]map[string][]float64

func (r results) add(op operation, subject string, value float64) {
	if r[op] == nil {
		r[op] = map[string][]float64{}
	}
	r[op][subject] = append(r[op][subject], value)
}

// operations lists the measured operations, in the table's order.
func (r results) operations() []operation {
	return slices.Sorted(maps.Keys(r))
}

// percentile returns the nearest-rank percentile p, above 0 and at most 100, of samples in any
// order, and 0 without samples.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// median returns the middle sample, or the mean of the two in the middle, and 0 without
// samples.
func median(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
