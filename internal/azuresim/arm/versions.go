package arm

import (
	"regexp"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
)

var (
	apiVersion = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}(-preview)?$`)

	diskVersions = strings.Fields(`2016-04-30-preview 2017-03-30 2018-04-01 2018-06-01 2018-09-30 2019-03-01 2019-07-01 2019-11-01
		2020-05-01 2020-06-30 2020-09-30 2020-12-01 2021-04-01 2021-08-01 2021-12-01 2022-03-02 2022-07-02
		2023-01-02 2023-04-02 2023-10-02 2024-03-02 2025-01-02`)
	vmVersions = strings.Fields(`2015-05-01-preview 2015-06-15 2016-03-30 2016-04-30-preview 2016-08-30 2017-03-30 2017-12-01 2018-04-01
		2018-06-01 2018-10-01 2019-03-01 2019-07-01 2019-12-01 2020-06-01 2020-12-01 2021-03-01 2021-04-01
		2021-07-01 2021-11-01 2022-03-01 2022-08-01 2022-11-01 2023-03-01 2023-07-01 2023-09-01 2024-03-01
		2024-07-01 2024-11-01 2025-04-01`)
	skuVersions = strings.Fields(`2015-05-01-preview 2015-06-15 2016-03-30 2016-08-30 2017-03-30 2017-09-01 2018-09-01 2019-04-01
		2021-07-01`)
	resourceVersions = strings.Fields(`2014-04-01-preview 2014-04-01 2014-01-01 2013-03-01 2014-02-26 2014-04 2015-01-01 2015-11-01 2016-02-01
		2016-06-01 2016-07-01 2016-09-01 2017-03-01 2017-05-01 2017-05-10 2017-06-01 2017-08-01 2018-01-01
		2018-02-01 2018-05-01 2018-07-01 2018-08-01 2018-09-01 2018-11-01 2019-03-01 2019-05-01 2019-05-10
		2019-06-01 2019-07-01 2019-08-01 2019-09-01 2019-10-01 2019-11-01 2020-01-01 2020-05-01 2020-06-01
		2020-07-01 2020-08-01 2020-09-01 2020-10-01 2021-01-01 2021-04-01 2022-01-01 2022-03-01 2022-06-01
		2022-09-01 2022-12-01 2023-07-01 2024-03-01 2024-07-01 2024-11-01 2025-03-01 2025-04-01`)

	// versions are the api-versions by kind of resource.
	versions = map[string][]string{
		compute.KindDisk: diskVersions, compute.KindSnapshot: diskVersions, compute.KindEncryptionSet: diskVersions,
		compute.KindDiskAccess: diskVersions,
		compute.KindVM:         vmVersions, compute.KindScaleSet: vmVersions, "usages": vmVersions,
		"operations": slices.Concat(vmVersions, diskVersions),
		"skus":       skuVersions, "subscriptions": resourceVersions, "resourceGroups": resourceVersions,
	}
)

// checkVersion refuses api-versions that the kind of resource never had.
func checkVersion(kind, version string) *armerror.Error {
	known := versions[kind]
	switch {
	case version == "":
		return armerror.BadRequest("MissingApiVersionParameter",
			"The api-version query parameter (?api-version=) is required for all requests.")
	case slices.Contains(known, version):
		return nil
	case kind == "subscriptions" || kind == "resourceGroups" || !apiVersion.MatchString(version):
		return armerror.BadRequest("InvalidApiVersionParameter",
			"The api-version '%s' is invalid. The supported versions are '%s'.", version, strings.Join(known, ","))
	}
	return armerror.BadRequest("NoRegisteredProviderFound",
		"No registered resource provider found for location '%s' and API version '%s' for type '%s'. The supported api-versions are '%s'.",
		skus.Locations[0].Name, version, kind, strings.Join(known, ", "))
}
