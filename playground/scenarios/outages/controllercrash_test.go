package outages

import "testing"

func TestPointsAreInTheOrderOfTheFailover(t *testing.T) {
	t.Parallel()
	order := []string{"failover-before-release", "fence-after-end", "unpublish-before-released", "publish-after-acquire"}
	for i := 1; i < len(order); i++ {
		if stage(order[i-1]) >= stage(order[i]) {
			t.Errorf("%s is not before %s", order[i-1], order[i])
		}
	}
}
